package fault

import (
	"strings"
	"testing"
)

// The quoted address of a server has neither a user nor a query nor a fragment, however malformed it is. One that has
// none of these is quoted as it is.
func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"http://localhost:5000/a/": "http://localhost:5000/a/", "localhost:5000": "localhost:5000", "": "",
		"https://me:s3cret@h:1/a%20b?token=s3cret#s3cret": "https://h:1/a%20b", "https://s3cret@h": "https://h", "https://h?s3cret": "https://h",
		"s3://me:s3/cret@bucket/key": "...", "http://me:s3?cret@h": "...", "http://me:1?s3cret@h": "...", "http://me:1#s3cret@h": "...",
		"me:s3cret@h:1": "...", "http://me:s3cret%zz@h": "...", "http://h/a@s3cret": "...", "http://me:s3@cret@h": "...", "//me:s3 cret@h": "...",
	} {
		if got := Address(text); got != want || strings.Contains(got, "s3") {
			t.Errorf("%q is quoted as %q, expected %q", text, got, want)
		}
	}
}
