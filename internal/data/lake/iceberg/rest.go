package iceberg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// Environment variables with the secrets for a REST catalogue.
const (
	tokenVariable      = "SHAVER_CATALOG_TOKEN"      // a bearer token
	credentialVariable = "SHAVER_CATALOG_CREDENTIAL" // id:secret of a client, for which the catalogue gives a token
)

// catalogTimeout bounds a request to a catalogue, with its answer.
const catalogTimeout = 2 * time.Minute

// catalog is a REST catalogue.
type catalog struct {
	base   string // URL without a slash at the end
	token  string
	client http.Client
}

// Load asks a REST catalogue for a table, such as sales.clicks. Parts of its namespace are separated by dots too. The URL of the
// catalogue may have a warehouse and the scope of a token in its query. The secrets come from the environment: SHAVER_CATALOG_TOKEN is
// a bearer token, and SHAVER_CATALOG_CREDENTIAL has the form id:secret. Credentials for the table's files in the
// catalogue's answer are ignored, because the store has its own.
func Load(ctx context.Context, address, name string) (*Table, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, fault.Usagef("catalogue %s: expected a URL such as https://catalog.example/api?warehouse=w, with secrets in the environment", fault.Address(address))
	}
	dot := strings.LastIndexByte(name, '.')
	if dot <= 0 || dot == len(name)-1 {
		return nil, fault.Usagef("table %q: expected a namespace and a name in the catalogue, such as sales.clicks", name)
	}
	query := u.Query()
	u.RawQuery = ""
	for setting := range query {
		if setting != "warehouse" && setting != "scope" {
			return nil, fault.Usagef("catalogue %s: its query has %q, expected warehouse or scope", u, setting)
		}
	}
	c := &catalog{base: strings.TrimRight(u.String(), "/"), token: strings.TrimSpace(os.Getenv(tokenVariable))}
	c.client = http.Client{Timeout: catalogTimeout, CheckRedirect: stay}
	if err := c.authenticate(ctx, query.Get("scope")); err != nil {
		return nil, err
	}
	var config struct{ Defaults, Overrides map[string]string }
	path := "/v1/config"
	if warehouse := query.Get("warehouse"); warehouse != "" {
		path += "?" + url.Values{"warehouse": {warehouse}}.Encode()
	}
	if err := c.get(ctx, path, "the configuration of a catalogue; check its URL", &config); err != nil {
		return nil, err
	}
	if other := config.Overrides["uri"]; other != "" && strings.TrimRight(other, "/") != c.base {
		return nil, fault.Inputf("catalogue %s: the catalogue says that its URL is %s: use that one", c.base, fault.Address(other))
	}
	prefix := config.Overrides["prefix"]
	if prefix == "" {
		prefix = config.Defaults["prefix"]
	}
	path = "/v1/"
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		path += (&url.URL{Path: prefix}).EscapedPath() + "/"
	}
	namespace := strings.ReplaceAll(name[:dot], ".", "\x1f")
	path += "namespaces/" + url.PathEscape(namespace) + "/tables/" + url.PathEscape(name[dot+1:])
	var answer struct {
		Name     string          `json:"metadata-location"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := c.get(ctx, path, "a table; check its name and the warehouse", &answer); err != nil {
		return nil, err
	}
	if answer.Name == "" {
		answer.Name = name
	}
	return parseTable(fault.Address(answer.Name), answer.Metadata)
}

// stay refuses a redirect to another server, which might get the token.
func stay(r *http.Request, via []*http.Request) error {
	if first := via[0].URL; r.URL.Scheme != first.Scheme || r.URL.Host != first.Host || len(via) > 5 {
		return fault.Inputf("the catalogue redirects to %s://%s: use the URL of that server if it is the right one", r.URL.Scheme, r.URL.Host)
	}
	return nil
}

// authenticate gets a token if the environment has a credential and no token.
func (c *catalog) authenticate(ctx context.Context, scope string) error {
	credential := strings.TrimSpace(os.Getenv(credentialVariable))
	if c.token != "" || credential == "" {
		return nil
	}
	id, secret, ok := strings.Cut(credential, ":")
	if !ok {
		return fault.Usagef("%s: expected id:secret", credentialVariable)
	}
	if scope == "" {
		scope = "catalog"
	}
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {id}, "client_secret": {secret}, "scope": {scope}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v1/oauth/tokens", strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var answer struct {
		Token string `json:"access_token"`
	}
	if err := c.send(r, "a token; check "+credentialVariable, &answer); err != nil {
		return err
	}
	if c.token = answer.Token; c.token == "" {
		return fault.Inputf("catalogue %s: the answer to %s has no access_token: set %s instead", c.base, credentialVariable, tokenVariable)
	}
	return nil
}

func (c *catalog) get(ctx context.Context, path, expected string, to any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.send(r, expected, to)
}

// send decodes the answer to a request. expected says in errors what the answer should be, and what to do.
func (c *catalog) send(r *http.Request, expected string, to any) (err error) {
	defer func() {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // u names the URL with its query
		}
		if err != nil {
			err = fmt.Errorf("catalogue %s: %w", fault.Address(r.URL.String()), err)
		}
	}()
	answer, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	data, err := files.Read(answer.Body, "the answer", mostMetadata, expected)
	if err != nil {
		return err
	}
	switch status := answer.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fault.Inputf("%s: the catalogue refuses access: check %s or %s, and the rights of their owner", answer.Status, tokenVariable, credentialVariable)
	case status >= 500 || status == http.StatusTooManyRequests:
		return errors.New(answer.Status)
	case status != http.StatusOK:
		return fault.Inputf("%s: expected %s", answer.Status, expected)
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fault.Inputf("the answer is not JSON as of a REST catalog: expected %s", expected)
	}
	return nil
}
