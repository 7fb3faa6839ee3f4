package fault

import (
	"net/url"
	"strings"
)

// Address returns the address of a server or the URL of an object as errors and logs quote it: without its user,
// password, query and fragment, which may be secret. If it is so malformed that a secret may be anywhere, Address returns "...".
func Address(text string) string {
	if !strings.ContainsAny(text, "@?#") {
		return text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || strings.Contains(text, "@") && (u.User == nil || strings.Count(text, "@") > 1) {
		return "..."
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}
