package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"shaver/internal/base/fault"
)

// s3Bucket is a bucket of Amazon S3, of a server with the same interface, or of Google Cloud
// Storage, whose XML interface is the same except for headers that gcsTransport replaces.
type s3Bucket struct {
	core   *minio.Core
	name   string
	google bool // it is one of Google Cloud Storage
}

// transport returns the settings of connections. There is no limit on the time of a whole
// request, because an object may be large, but each step has one.
func transport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.TLSHandshakeTimeout = 15 * time.Second
	t.ResponseHeaderTimeout = 2 * time.Minute
	t.MaxIdleConnsPerHost = 16
	t.DisableCompression = true // the bytes of an object are its content
	return unstalled{t}
}

// stay follows no redirect, which would send credentials elsewhere.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// openS3 opens a bucket. Settings of the URL win over the environment, which has the names
// that the programs of AWS use.
func openS3(l Location, env func(string) string) (bucket, error) {
	first := func(values ...string) string {
		for _, v := range values {
			if v != "" {
				return v
			}
		}
		return ""
	}
	text := first(l.query.Get("endpoint"), env("AWS_ENDPOINT_URL_S3"), env("AWS_ENDPOINT_URL"))
	endpoint, err := parseEndpoint(text)
	if err != nil {
		return nil, fault.Usagef("AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL: %w", err)
	}
	o := &minio.Options{
		Secure: true, Transport: transport(), MaxRetries: 1,
		Region: first(l.query.Get("region"), env("AWS_REGION"), env("AWS_DEFAULT_REGION")),
	}
	host := "s3.amazonaws.com"
	if endpoint != nil {
		if strings.Trim(endpoint.Path, "/") != "" {
			return nil, fault.Usagef("%s: the address of the server must not have a path", l)
		}
		host, o.Secure = endpoint.Host, endpoint.Scheme == "https"
		o.BucketLookup = minio.BucketLookupPath // few servers have a name for each bucket
		o.Region = first(o.Region, "us-east-1")
	}
	switch l.query.Get("use_path_style") {
	case "true":
		o.BucketLookup = minio.BucketLookupPath
	case "false":
		o.BucketLookup = minio.BucketLookupDNS
	}
	client := &http.Client{Transport: o.Transport, CheckRedirect: stay}
	if l.query.Get("anonymous") == "true" {
		o.Creds = credentials.NewStatic("", "", "", credentials.SignatureAnonymous)
	} else {
		o.Creds = credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{},
			&credentials.FileAWSCredentials{Profile: l.query.Get("profile")},
			&credentials.IAM{Client: client}, // a role: of a service account, a container or a machine
		})
	}
	core, err := minio.NewCore(host, o)
	if err != nil {
		return nil, fault.Usagef("%s: %w", l, err)
	}
	return &s3Bucket{core: core, name: l.Bucket}, nil
}

// address returns the address of the server.
func (b *s3Bucket) address() string { return b.core.EndpointURL().String() }

// failure returns the error of a request as a *statusError, if the store answered.
func (b *s3Bucket) failure(err error) error {
	if err == nil {
		return nil
	}
	var r minio.ErrorResponse
	if errors.As(err, &r) && (r.StatusCode != 0 || r.Code != "") {
		status := r.StatusCode
		switch r.Code { // an answer of status 200 may have an error as its body
		case "NoSuchKey", "NoSuchBucket":
			status = 404
		case "ExpiredToken":
			status = 401
		case "PreconditionFailed", "ConditionalRequestConflict":
			status = 412
		case "SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "NoSuchUpload":
			status = 503
		}
		return &statusError{status, strings.TrimSpace(r.Code + " " + r.Message)}
	}
	return err
}

func (b *s3Bucket) object(info minio.ObjectInfo) object {
	o := object{key: info.Key, size: info.Size, version: info.ETag}
	if generation := info.Headers.Get(gcsGeneration); generation != "" {
		o.version = generation
	}
	o.sha256, o.write = info.Headers.Get("X-Amz-Meta-"+metaSHA256), info.Headers.Get("X-Amz-Meta-"+metaWrite)
	return o
}

// The names of what this program stores with an object.
const (
	metaSHA256 = "Shaver-Sha256"
	metaWrite  = "Shaver-Write"
)

func (b *s3Bucket) head(ctx context.Context, key string) (object, error) {
	info, err := b.core.StatObject(ctx, b.name, key, minio.StatObjectOptions{})
	if err != nil {
		return object{}, b.failure(err)
	}
	info.Key = key
	return b.object(info), nil
}

func (b *s3Bucket) get(ctx context.Context, key, version string, offset int64) (io.ReadCloser, object, error) {
	var o minio.GetObjectOptions
	if version != "" {
		if err := o.SetMatchETag(version); err != nil {
			return nil, object{}, err
		}
	}
	if offset > 0 {
		o.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	body, info, _, err := b.core.GetObject(ctx, b.name, key, o)
	if err != nil {
		return nil, object{}, b.failure(err)
	}
	info.Key = key
	found := b.object(info)
	if found.size, err = wholeSize(info.Headers, info.Size, offset); err == nil && version != "" && found.version != version {
		err = &statusError{412, "the object has changed"}
	}
	if err != nil {
		body.Close()
		return nil, object{}, err
	}
	return body, found, nil
}

// wholeSize returns the size of an object from the headers of an answer that begins at offset.
func wholeSize(h http.Header, length, offset int64) (int64, error) {
	if offset == 0 {
		return length, nil
	}
	var from, to, size int64
	if n, err := fmt.Sscanf(h.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &size); n != 3 || err != nil || from != offset || to < from || size <= to {
		return 0, &statusError{400, "the store does not send a part of an object"}
	}
	return size, nil
}

// partSize is the size of the parts of a large upload, and of the largest object that is
// written in one request.
var partSize int64 = 64 << 20

func (b *s3Bucket) put(ctx context.Context, key string, data io.ReaderAt, size int64, about object, c condition) (string, error) {
	var guard, o minio.PutObjectOptions
	switch {
	case c.absent:
		guard.SetMatchETagExcept("*")
	case c.version != "":
		guard.SetMatchETag(c.version)
	}
	// Google Cloud Storage knows no conditions on an upload in parts, and its requests may be
	// of any size.
	whole := size <= partSize || b.google && c != (condition{})
	if whole {
		o = guard
	}
	o.UserMetadata = map[string]string{metaSHA256: about.sha256, metaWrite: about.write}
	if whole {
		info, err := b.core.PutObject(ctx, b.name, key, io.NewSectionReader(data, 0, size), size, "", about.sha256, o)
		return info.ETag, b.failure(err)
	}
	id, err := b.core.NewMultipartUpload(ctx, b.name, key, o)
	if err != nil {
		return "", b.failure(err)
	}
	version, err := b.putParts(ctx, key, id, data, size, guard)
	if err != nil {
		// Parts of an upload that is not completed cost money until they are deleted.
		clean, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer stop()
		_ = b.core.AbortMultipartUpload(clean, b.name, key, id)
	}
	return version, err
}

// putParts writes the parts of an object and completes it.
func (b *s3Bucket) putParts(ctx context.Context, key, id string, data io.ReaderAt, size int64, guard minio.PutObjectOptions) (string, error) {
	const mostParts = 10000
	part := max(partSize, (size+mostParts-1)/mostParts)
	var parts []minio.CompletePart
	for offset := int64(0); offset < size; offset += part {
		n := min(part, size-offset)
		err := retry(ctx, func(int) (bool, error) {
			p, err := b.core.PutObjectPart(ctx, b.name, key, id, len(parts)+1, io.NewSectionReader(data, offset, n), n, minio.PutObjectPartOptions{})
			if err == nil {
				parts = append(parts, minio.CompletePart{PartNumber: p.PartNumber, ETag: p.ETag})
			}
			return false, b.failure(err)
		})
		if err != nil {
			return "", err
		}
	}
	info, err := b.core.CompleteMultipartUpload(ctx, b.name, key, id, parts, guard)
	if b.google {
		info.ETag = "" // the answer has the ETag and not the generation, which the caller asks for
	}
	return info.ETag, b.failure(err)
}

func (b *s3Bucket) list(ctx context.Context, prefix string, shallow bool, visit func(object) error) error {
	delimiter := ""
	if shallow {
		delimiter = "/"
	}
	token := ""
	for {
		var page minio.ListBucketV2Result
		err := retry(ctx, func(int) (_ bool, err error) {
			page, err = b.core.ListObjectsV2(b.name, prefix, "", token, delimiter, 1000)
			return false, b.failure(err)
		})
		if err != nil {
			return err
		}
		for _, p := range page.CommonPrefixes {
			if err := visit(object{key: p.Prefix}); err != nil {
				return err
			}
		}
		for _, info := range page.Contents {
			if err := visit(object{key: info.Key, size: info.Size, version: strings.Trim(info.ETag, `"`)}); err != nil {
				return err
			}
		}
		if !page.IsTruncated {
			return nil
		}
		if page.NextContinuationToken == "" || page.NextContinuationToken == token {
			return &statusError{400, "the store's list of objects does not end"}
		}
		token = page.NextContinuationToken
	}
}

func (b *s3Bucket) remove(ctx context.Context, key string) error {
	err := b.failure(b.core.RemoveObject(ctx, b.name, key, minio.RemoveObjectOptions{}))
	if err != nil && judge(err) == missing {
		return nil
	}
	return err
}
