package dashboard

import (
	"encoding/json"
	"reflect"
)

// A document is a value of JSON as package json decodes it.
type document = map[string]any

// documentOf returns v as JSON has it.
func documentOf(v any) (document, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var d document
	return d, json.Unmarshal(text, &d)
}

// difference returns the merge patch (RFC 7396) that makes to of from. No value in a document
// is null, as a patch cannot say that.
func difference(from, to document) document {
	patch := make(document)
	for name := range from {
		if _, stays := to[name]; !stays {
			patch[name] = nil
		}
	}

	for name, value := range to {
		old, known := from[name]
		inner, isObject := value.(document)

		before, wasObject := old.(document)
		switch {
		case known && isObject && wasObject:
			if d := difference(before, inner); len(d) > 0 {
				patch[name] = d
			}

		case !known || !reflect.DeepEqual(old, value):
			patch[name] = value
		}
	}

	return patch
}
