package remote

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"shaver/internal/base/fault"
)

// Headers of the XML interface of Google Cloud Storage.
const (
	gcsGeneration = "X-Goog-Generation"
	gcsMatch      = "X-Goog-If-Generation-Match"
	gcsScope      = "https://www.googleapis.com/auth/devstorage.read_write"
)

// openGCS opens a bucket of Google Cloud Storage with the default credentials of Google's
// programs: GOOGLE_APPLICATION_CREDENTIALS, those of gcloud, or the service account of the machine
// or of the pod. STORAGE_EMULATOR_HOST names another server, which needs no credentials.
func openGCS(ctx context.Context, l Location, env func(string) string) (bucket, error) {
	text, anonymous := l.query.Get("endpoint"), l.query.Get("anonymous") == "true"
	if host := env("STORAGE_EMULATOR_HOST"); text == "" && host != "" {
		if text = host; !strings.Contains(host, "://") {
			text = "http://" + host
		}
		anonymous = true
	}
	endpoint, err := parseEndpoint(text)
	if err != nil {
		return nil, fault.Usagef("STORAGE_EMULATOR_HOST: %w", err)
	}
	host, secure := "storage.googleapis.com", true
	if endpoint != nil {
		host, secure = endpoint.Host, endpoint.Scheme == "https"
	}
	t := &gcsTransport{next: transport()}
	if !anonymous {
		// The context of a token source lives as long as the source.
		found, err := google.FindDefaultCredentials(context.WithoutCancel(ctx), gcsScope)
		if err != nil {
			return nil, errors.New("no credentials for Google Cloud Storage: set GOOGLE_APPLICATION_CREDENTIALS, or use the service account of the machine or of the pod")
		}
		t.tokens = found.TokenSource
	}
	core, err := minio.NewCore(host, &minio.Options{
		Secure: secure, Transport: t, MaxRetries: 1, Region: "auto", BucketLookup: minio.BucketLookupPath,
		Creds: credentials.NewStatic("", "", "", credentials.SignatureAnonymous), // gcsTransport adds the token
	})
	if err != nil {
		return nil, fault.Usagef("%s: %w", l, err)
	}
	return &s3Bucket{core: core, name: l.Bucket, google: true}, nil
}

// gcsTransport turns requests of S3's interface into those of Google's. A version is a
// generation, so a condition on the ETag becomes one on the generation.
type gcsTransport struct {
	next   http.RoundTripper
	tokens oauth2.TokenSource // nil = no credentials
}

func (t *gcsTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if match := r.Header.Get("If-Match"); match != "" {
		r.Header.Del("If-Match")
		r.Header.Set(gcsMatch, strings.Trim(match, `"`))
	}
	if r.Header.Get("If-None-Match") == "*" {
		r.Header.Del("If-None-Match")
		r.Header.Set(gcsMatch, "0")
	}
	for name, values := range r.Header {
		if rest, ok := strings.CutPrefix(name, "X-Amz-Meta-"); ok {
			r.Header["X-Goog-Meta-"+rest] = values
		}
		if strings.HasPrefix(name, "X-Amz-") {
			delete(r.Header, name)
		}
	}
	if t.tokens != nil {
		token, err := t.tokens.Token()
		if err != nil {
			return nil, errors.New("no access token for Google Cloud Storage: " + tokenError(err))
		}
		token.SetAuthHeader(r)
	}
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	for name, values := range answer.Header {
		if rest, ok := strings.CutPrefix(name, "X-Goog-Meta-"); ok {
			answer.Header["X-Amz-Meta-"+rest] = values
		}
	}
	if generation := answer.Header.Get(gcsGeneration); generation != "" {
		answer.Header.Set("ETag", `"`+generation+`"`) // what a write returns as its version
	}
	return answer, nil
}

// tokenError returns why there is no token, without what the server answered, which may
// repeat a secret.
func tokenError(err error) string {
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return strings.TrimSpace(e.Response.Status + " " + e.ErrorCode)
	}
	return plain(err).Error()
}
