package remote

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"shaver/internal/base/fault"
)

// azureBucket is a container of Azure Blob Storage.
type azureBucket struct{ client *container.Client }

// openAzure opens a container. The credentials are, in this order, those of
// AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, or the identity
// of the environment, the pod, the machine or the user.
func openAzure(l Location, env func(string) string) (bucket, error) {
	options := &container.ClientOptions{ClientOptions: policy.ClientOptions{
		Transport: &http.Client{Transport: transport(), CheckRedirect: stay},
		Retry:     policy.RetryOptions{MaxRetries: -1}, // this package retries
	}}
	if text := env("AZURE_STORAGE_CONNECTION_STRING"); text != "" && len(l.query) == 0 {
		client, err := container.NewClientFromConnectionString(text, l.Bucket, options)
		if err != nil {
			return nil, fault.Usagef("AZURE_STORAGE_CONNECTION_STRING is malformed")
		}
		return &azureBucket{client}, nil
	}
	account := l.query.Get("storage_account")
	if account == "" {
		account = env("AZURE_STORAGE_ACCOUNT")
	}
	if account == "" || !isBucket(account) {
		return nil, fault.Usagef("%s: expected the name of the storage account, as ?storage_account=NAME or in AZURE_STORAGE_ACCOUNT", l)
	}
	address := "https://" + account + ".blob.core.windows.net"
	if endpoint, _ := l.endpoint(); endpoint != nil { // Parse has checked it
		address = strings.TrimRight(endpoint.String(), "/")
	}
	address += "/" + l.Bucket
	var client *container.Client
	var err error
	switch key, token := env("AZURE_STORAGE_KEY"), env("AZURE_STORAGE_SAS_TOKEN"); {
	case l.query.Get("anonymous") == "true":
		client, err = container.NewClientWithNoCredential(address, options)
	case key != "":
		var shared *container.SharedKeyCredential
		if shared, err = container.NewSharedKeyCredential(account, key); err != nil {
			return nil, fault.Usagef("AZURE_STORAGE_KEY is not an account key")
		}
		client, err = container.NewClientWithSharedKeyCredential(address, shared, options)
	case token != "":
		client, err = container.NewClientWithNoCredential(address+"?"+strings.TrimPrefix(token, "?"), options)
	default:
		var identity *azidentity.DefaultAzureCredential
		if identity, err = azidentity.NewDefaultAzureCredential(nil); err == nil {
			client, err = container.NewClient(address, identity, options)
		}
	}
	if err != nil {
		return nil, errors.New("opening " + l.String() + ": " + plain(err).Error())
	}
	return &azureBucket{client}, nil
}

// address returns the address of the server, without the query of the URL, which may be a secret.
func (b *azureBucket) address() string {
	address, _, _ := strings.Cut(b.client.URL(), "?")
	return address
}

// failure returns the error of a request as a *statusError, if the store answered.
func (b *azureBucket) failure(err error) error {
	if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return &statusError{answer.StatusCode, answer.ErrorCode}
	}
	if failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); ok {
		status := "no access token for Azure Blob Storage"
		if failed.RawResponse != nil {
			status += ": " + failed.RawResponse.Status
		}
		return &statusError{http.StatusUnauthorized, status}
	}
	return err
}

// blob returns the client of an object. It escapes the key.
func (b *azureBucket) blob(key string) *blockblob.Client { return b.client.NewBlockBlobClient(key) }

// match returns the condition that an object has a version.
func match(version string) *blob.AccessConditions {
	if version == "" {
		return nil
	}
	tag := azcore.ETag(version)
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &tag}}
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// meta returns what this program stored with an object. The names come back in another case.
func (o *object) meta(metadata map[string]*string) {
	for name, v := range metadata {
		switch strings.ToLower(name) {
		case azureSHA256:
			o.sha256 = value(v)
		case azureWrite:
			o.write = value(v)
		}
	}
}

// The names of what this program stores with an object. Names must be those of C# identifiers.
const (
	azureSHA256 = "shaver_sha256"
	azureWrite  = "shaver_write"
)

func (b *azureBucket) head(ctx context.Context, key string) (object, error) {
	p, err := b.blob(key).GetProperties(ctx, nil)
	if err != nil {
		return object{}, b.failure(err)
	}
	o := object{key: key, size: value(p.ContentLength), version: string(value(p.ETag))}
	o.meta(p.Metadata)
	return o, nil
}

func (b *azureBucket) get(ctx context.Context, key, version string, offset int64) (io.ReadCloser, object, error) {
	r, err := b.blob(key).DownloadStream(ctx, &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: offset}, AccessConditions: match(version)})
	if err != nil {
		return nil, object{}, b.failure(err)
	}
	o := object{key: key, version: string(value(r.ETag))}
	o.meta(r.Metadata)
	header := http.Header{}
	header.Set("Content-Range", value(r.ContentRange))
	if o.size, err = wholeSize(header, value(r.ContentLength), offset); err == nil && version != "" && o.version != version {
		err = &statusError{412, "the object has changed"}
	}
	if err != nil {
		r.Body.Close()
		return nil, object{}, err
	}
	return r.Body, o, nil
}

func (b *azureBucket) put(ctx context.Context, key string, data io.ReaderAt, size int64, about object, c condition) (string, error) {
	conditions := match(c.version)
	if c.absent {
		all := azcore.ETagAny
		conditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &all}}
	}
	metadata := map[string]*string{azureSHA256: &about.sha256, azureWrite: &about.write}
	client := b.blob(key)
	part := func(offset, n int64) io.ReadSeekCloser {
		return streaming.NopCloser(io.NewSectionReader(data, offset, n))
	}
	if size <= partSize {
		r, err := client.Upload(ctx, part(0, size), &blockblob.UploadOptions{Metadata: metadata, AccessConditions: conditions})
		return string(value(r.ETag)), b.failure(err)
	}
	// Blocks that are never committed disappear after a week.
	const mostBlocks = 50000
	length := max(partSize, (size+mostBlocks-1)/mostBlocks)
	prefix := about.write[:min(len(about.write), 16)]
	var ids []string
	for offset := int64(0); offset < size; offset += length {
		id := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64([]byte(prefix), uint64(len(ids))))
		err := retry(ctx, func(int) (bool, error) {
			_, err := client.StageBlock(ctx, id, part(offset, min(length, size-offset)), nil)
			return false, b.failure(err)
		})
		if err != nil {
			return "", err
		}
		ids = append(ids, id)
	}
	r, err := client.CommitBlockList(ctx, ids, &blockblob.CommitBlockListOptions{Metadata: metadata, AccessConditions: conditions})
	return string(value(r.ETag)), b.failure(err)
}

func (b *azureBucket) list(ctx context.Context, prefix string, shallow bool, visit func(object) error) error {
	var marker *string
	for {
		var next *string
		var found []object
		err := retry(ctx, func(int) (bool, error) {
			found = nil
			var items []*container.BlobItem
			if shallow {
				page, err := b.client.NewListBlobsHierarchyPager("/", &container.ListBlobsHierarchyOptions{Prefix: &prefix, Marker: marker}).NextPage(ctx)
				if err != nil {
					return false, b.failure(err)
				}
				next = page.NextMarker
				if s := page.Segment; s != nil {
					items = s.BlobItems
					for _, p := range s.BlobPrefixes {
						found = append(found, object{key: value(p.Name)})
					}
				}
			} else {
				page, err := b.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix, Marker: marker}).NextPage(ctx)
				if err != nil {
					return false, b.failure(err)
				}
				next = page.NextMarker
				if s := page.Segment; s != nil {
					items = s.BlobItems
				}
			}
			for _, item := range items {
				o := object{key: value(item.Name)}
				if p := item.Properties; p != nil {
					o.size, o.version = value(p.ContentLength), string(value(p.ETag))
				}
				found = append(found, o)
			}
			return false, nil
		})
		if err != nil {
			return err
		}
		for _, o := range found {
			if err := visit(o); err != nil {
				return err
			}
		}
		if value(next) == "" {
			return nil
		}
		if value(next) == value(marker) {
			return &statusError{400, "the store's list of objects does not end"}
		}
		marker = next
	}
}

func (b *azureBucket) remove(ctx context.Context, key string) error {
	_, err := b.blob(key).Delete(ctx, nil)
	if err = b.failure(err); err != nil && judge(err) == missing {
		return nil
	}
	return err
}
