package remote

import "testing"

// Two objects are in the same store only if scheme, bucket and settings agree.
func TestSameStore(t *testing.T) {
	at := func(text string) Location {
		l, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	const own = "s3://b/out.arrow?endpoint=http://127.0.0.1:9000&region=r"
	for other, want := range map[string]bool{
		"s3://b/x/other.arrow?region=r&endpoint=http://127.0.0.1:9000": true,
		"s3://c/out.arrow?endpoint=http://127.0.0.1:9000&region=r":     false,
		"s3://b/out.arrow?endpoint=http://127.0.0.2:9000&region=r":     false,
		"s3://b/out.arrow": false,
		"gs://b/out.arrow": false,
	} {
		if got := at(own).SameStore(at(other)); got != want {
			t.Errorf("%s and %s: %t", own, other, got)
		}
	}
}
