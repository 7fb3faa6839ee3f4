// Package remote copies files and folders between a local scratch folder and object stores:
// Amazon S3 and servers with the same interface, Google Cloud Storage, Azure Blob Storage, and
// folders as if they were stores. Readers and writers of files know nothing of it.
//
// A place in a store is a URL: s3://BUCKET/KEY, gs://BUCKET/KEY, azblob://CONTAINER/KEY or
// file:///PATH. The key is taken as it is, without decoding, and ends at the first question
// mark. Settings follow as in a query, such as ?endpoint=http://127.0.0.1:9000. Credentials
// never come from the URL.
//
// An object has a version, which changes with its content. A copy that is interrupted continues
// with the same version or starts again. A write may depend on the version that is there, so of
// two writers only one wins.
package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"shaver/internal/base/fault"
)

// The schemes of URLs.
const (
	schemeS3    = "s3"
	schemeGCS   = "gs"
	schemeAzure = "azblob"
	schemeFile  = "file"
)

// settings lists the settings that the URLs of each scheme may have.
var settings = map[string][]string{
	schemeS3:    {"anonymous", "endpoint", "profile", "region", "use_path_style"},
	schemeGCS:   {"anonymous", "endpoint"},
	schemeAzure: {"anonymous", "endpoint", "storage_account"},
	schemeFile:  {},
}

// Is reports whether path is the URL of a place in a store. Other texts are local paths.
func Is(path string) bool {
	scheme, _, ok := strings.Cut(path, "://")
	_, known := settings[scheme]
	return ok && known
}

// Location is an object, or all objects whose keys begin with Key and a slash.
type Location struct {
	Scheme string
	Bucket string // bucket or container; "" for files
	Key    string // slashes separate its parts; "" = the whole bucket. For files it is a path without the first slash
	query  url.Values
}

// SameStore reports whether two objects are in the same bucket and reached with the same
// settings.
func (l Location) SameStore(other Location) bool {
	return l.Scheme == other.Scheme && l.Bucket == other.Bucket && l.query.Encode() == other.query.Encode()
}

// Parse parses a URL. A malformed one is wrong usage. The error does not repeat a part of the
// URL that could be a secret.
func Parse(text string) (Location, error) {
	var l Location
	scheme, rest, ok := strings.Cut(text, "://")
	known, isKnown := settings[scheme]
	if !ok || !isKnown {
		return l, fault.Usagef("%.40q is not the URL of an object: expected s3://, gs://, azblob:// or file://", fault.Address(text))
	}
	rest, query, _ := strings.Cut(rest, "?")
	bucket, key, _ := strings.Cut(rest, "/")
	l = Location{Scheme: scheme, Bucket: bucket, Key: strings.TrimRight(key, "/")}
	if strings.ContainsAny(bucket, "@:") { // a key may have a slash
		return l, fault.Usagef("a URL that begins with %s:// has an @ or a colon before the first slash: credentials must not be in a URL, they come from the environment", scheme)
	}
	switch {
	case scheme == schemeFile && bucket != "" && bucket != "localhost":
		return l, fault.Usagef("%s: expected file:/// and an absolute path", l)
	case scheme == schemeFile:
		l.Bucket = ""
	case !isBucket(bucket):
		return l, fault.Usagef("%s: expected the name of a bucket after %s://", l, scheme)
	}
	if l.Key != "" || scheme == schemeFile {
		if why := badKey(l.Key); why != "" {
			return l, fault.Usagef("%s: %s", l, why)
		}
	}
	var err error
	if l.query, err = url.ParseQuery(query); err != nil {
		return l, fault.Usagef("%s: what follows the question mark is not a list of settings, such as ?region=eu-central-1", l)
	}
	for name, values := range l.query {
		if !slices.Contains(known, name) {
			expected := "none"
			if len(known) > 0 {
				expected = "one of " + strings.Join(known, ", ")
			}
			return l, fault.Usagef("%s: unknown setting %.40q: expected %s", l, name, expected)
		}
		if len(values) != 1 {
			return l, fault.Usagef("%s: the setting %s is there twice", l, name)
		}
	}
	if err := l.checkSettings(); err != nil {
		return l, err
	}
	return l, nil
}

// checkSettings checks the values of the settings.
func (l Location) checkSettings() error {
	for _, name := range []string{"anonymous", "use_path_style"} {
		if v := l.query.Get(name); v != "" && v != "true" && v != "false" {
			return fault.Usagef("%s: %s must be true or false", l, name)
		}
	}
	if _, err := l.endpoint(); err != nil {
		return fault.Usagef("%s: endpoint must be http://HOST:PORT or https://HOST:PORT", l)
	}
	return nil
}

// endpoint returns the address in the settings, or nil.
func (l Location) endpoint() (*url.URL, error) { return parseEndpoint(l.query.Get("endpoint")) }

// parseEndpoint parses the address of a server.
func parseEndpoint(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("expected http://HOST:PORT or https://HOST:PORT")
	}
	return u, nil
}

// isBucket reports whether a bucket or container may have the name.
func isBucket(name string) bool {
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.$", r))
	}
	return name != "" && len(name) <= 255 && name[0] != '.' && !strings.ContainsFunc(name, odd)
}

// mostKey is the length of the longest key in bytes, for files that of a path.
const mostKey = 4096

// badKey returns why a key cannot be used, or "". A key must be the path of a local file
// in every system, so that no key leads out of the scratch folder and no two keys lead to one file.
func badKey(key string) string {
	switch {
	case key == "":
		return "expected a key after the bucket"
	case len(key) > mostKey:
		return fmt.Sprintf("the key is longer than %d bytes", mostKey)
	case !utf8.ValidString(key):
		return "the key is not UTF-8"
	case strings.ContainsFunc(key, func(r rune) bool { return r == '\\' || unicode.IsControl(r) }):
		return "the key has a backslash or a control character"
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || part == ".." {
			return "the key has a part that is empty, . or .."
		}
	}
	if !filepath.IsLocal(filepath.FromSlash(key)) {
		return "the key cannot be the path of a file"
	}
	return ""
}

// String returns the URL without its settings. It is what messages show.
func (l Location) String() string {
	if l.Scheme == schemeFile {
		return "file:///" + l.Key
	}
	return strings.TrimSuffix(l.Scheme+"://"+l.Bucket+"/"+l.Key, "/")
}

// URL returns the whole URL, which Parse accepts.
func (l Location) URL() string {
	if len(l.query) == 0 {
		return l.String()
	}
	return l.String() + "?" + l.query.Encode()
}

// Join returns the place of a name below l. The name is separated by slashes.
func (l Location) Join(name string) Location {
	l.Key = strings.TrimPrefix(path.Join("/", l.Key, name), "/")
	return l
}

// Base returns the last part of the key.
func (l Location) Base() string { return path.Base(l.Key) }

// Sibling returns a place in the same folder.
func (l Location) Sibling(name string) Location {
	l.Key = strings.TrimPrefix(path.Join("/", path.Dir("/"+l.Key), name), "/")
	return l
}

// store identifies the bucket and how it is reached.
func (l Location) store() string { return l.Scheme + "://" + l.Bucket + "?" + l.query.Encode() }

// local returns the path of the local copy, relative to the scratch folder. Buckets with the
// same name on different servers have different folders.
func (l Location) local() string {
	bucket := l.Bucket
	if len(l.query) > 0 {
		sum := sha256.Sum256([]byte(l.query.Encode()))
		bucket += "@" + hex.EncodeToString(sum[:4])
	}
	return filepath.Join(l.Scheme, bucket, filepath.FromSlash(l.Key))
}
