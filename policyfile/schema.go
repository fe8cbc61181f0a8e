package policyfile

import "encoding/json"

// A schema is a node of a JSON Schema.
type schema = map[string]any

// Schema returns the JSON Schema (2020-12) of a file, for editors. It accepts every file
// that Parse accepts; what only Parse can tell, such as a limit that is none, it lets pass.
func Schema() []byte {
	s := root.schema()
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "policies of throttle"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	return append(text, '\n')
}
