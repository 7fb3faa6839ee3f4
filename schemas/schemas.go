// Package schemas holds the form of every file and message that the programs
// write, one file a form, embedded:
//
//	NAME.vN.json              JSON Schema (draft 2020-12) of a JSON file or message
//	NAME.vN.arrow.json        columns and metadata of an Arrow IPC file or stream
//	NAME.vN.safetensors.json  tensors and metadata of a safetensors file
//
// N rises when bytes of the old form would be misread or refused; then the old
// file stays beside the new one for as long as the code reads it. The tests
// compare each schema with the types in the code, and with bytes that the code
// wrote.
package schemas

import "embed"

// Files holds the schemas at its root. A "$ref" in one is the name of another.
//
//go:embed *.json
var Files embed.FS
