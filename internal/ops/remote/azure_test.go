package remote

import (
	"os"
	"testing"
)

// Azurite, Microsoft's imitation of Azure Blob Storage, behaves as the other stores. The
// test needs AZURITE, the address of the account that its server has by default, such as
// http://127.0.0.1:10000/devstoreaccount1.
func TestAzure(t *testing.T) {
	address := os.Getenv("AZURITE")
	if address == "" {
		t.Skip("AZURITE is not set: npm install -g azurite, start azurite-blob, and set it to the address of its account")
	}
	hurry(t)
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "")
	t.Setenv("AZURE_STORAGE_ACCOUNT", "devstoreaccount1")
	// This key is public: https://learn.microsoft.com/azure/storage/common/storage-use-azurite
	t.Setenv("AZURE_STORAGE_KEY", "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==")
	url := "azblob://bucket/" + t.Name()
	settings := "?endpoint=" + address
	s := session(t)
	b, err := s.open(t.Context(), place(t, url+settings))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.(*azureBucket).client.Create(t.Context(), nil); err != nil && judge(b.(*azureBucket).failure(err)) != changed {
		t.Fatal(err)
	}
	contract(t, url, settings)
	former := partSize
	t.Cleanup(func() { partSize = former })
	partSize = 1000 // the same with blocks
	data := randomBytes(10_500)
	store(t, url+"/large"+settings, data)
	path, err := session(t).Fetch(t.Context(), place(t, url+"/large"+settings))
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, data)
}
