// Package schemas holds a description of every file and message that the programs write.
// Each form has one embedded file:
//
//	NAME.vN.json              JSON Schema (draft 2020-12) of a JSON file or message
//	NAME.vN.arrow.json        columns and metadata of an Arrow IPC file or stream
//	NAME.vN.safetensors.json  tensors and metadata of a safetensors file
//
// N increases when bytes of the old form would be misread or refused. The old file then
// stays next to the new one for as long as the code reads the old form. The tests compare
// each schema with the types in the code and with bytes that the code wrote.
package schemas

import "embed"

// Files holds the schemas at its root. A "$ref" in one schema is the name of another one.
//
//go:embed *.json
var Files embed.FS
