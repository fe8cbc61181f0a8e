package feedback_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/feedback"
)

// FuzzCodes compares the search for fields with a plain one through all that
// encoding/json makes of the body.
func FuzzCodes(f *testing.F) {
	for _, body := range []string{
		`{"errcode":88,"sub_code":"90017"}`, `{"a":[{"b":7},{"b":"x"}],"c":null}`, `[{"c":1}]`, `{"a":{"x":{"b":true}}}`,
		`{"a":[],"c":" 7 "}`, `{"c":"\u0037"}`, `{"c":-1.5e7}`, `{"c":{"c":7}}`, `{"x":"}","c":7}`, "\ufeff{\"c\":7}",
		`{"c":7`, `{"c":7,`, `{"1":{"0":7}}`, `{"a":"","c":7}`, `7`, `"a`, `{"c":tru7}`, `{]`, `{"x":[[[[{}]]]],"c":7}`, "{\"c\":\"\x00\"}",
	} {
		f.Add(body)
	}
	fields := []string{"a.*.b", "*.0", "a", "c"}
	codes := feedback.Codes{Fields: fields, Lasts: lasts{"*7*": time.Second}}
	f.Fuzz(func(t *testing.T, body string) {
		resp := jsonAnswer(200, body)
		got := lengthOf(codes.Answer(resp))
		requireBody(t, body, resp)

		root, unique, ok := decode(body)
		if !ok || len(body) > 64<<10 {
			require.Contains(t, []time.Duration{0, time.Second}, got)
			return
		}
		if !unique {
			return
		}
		require.Equal(t, plainly(root, fields), got)
	})
}

// plainly looks for the first field that is there.
func plainly(root any, fields []string) time.Duration {
	for _, field := range fields {
		texts := textsAt(root, strings.Split(field, "."))
		for _, text := range texts {
			if strings.Contains(text, "7") {
				return time.Second
			}
		}
		if len(texts) > 0 {
			return 0
		}
	}
	return 0
}

// textsAt returns all texts that a path leads to, without those that are empty.
func textsAt(v any, path []string) (texts []string) {
	if len(path) == 0 {
		var text string
		switch v := v.(type) {
		case string:
			text = strings.TrimSpace(v)
		case json.Number:
			text = v.String()
		case bool:
			text = strconv.FormatBool(v)
		}
		if text != "" {
			texts = append(texts, text)
		}
		return texts
	}
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if path[0] == "*" || path[0] == name {
				texts = append(texts, textsAt(member, path[1:])...)
			}
		}
	case []any:
		for i, element := range v {
			if path[0] == "*" || path[0] == strconv.Itoa(i) {
				texts = append(texts, textsAt(element, path[1:])...)
			}
		}
	}
	return texts
}

// decode decodes JSON; unique is false if a name stands twice in an object.
func decode(body string) (root any, unique, ok bool) {
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&root); err != nil || !json.Valid([]byte(body)) {
		return nil, false, false
	}
	names := 0
	tokens := json.NewDecoder(strings.NewReader(body))
	tokens.UseNumber()
	var open []json.Delim // with, for each, whether a name comes next
	var name []bool
	for {
		token, err := tokens.Token()
		if err != nil {
			return root, names == namesIn(root), true
		}
		last := len(open) - 1
		delim, isDelim := token.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			open, name = open[:last], name[:last]
			continue
		}
		if last >= 0 && open[last] == '{' {
			if name[last] {
				names++
			}
			name[last] = !name[last]
		}
		if isDelim {
			open, name = append(open, delim), append(name, true)
		}
	}
}

// namesIn counts the names of all members.
func namesIn(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			n += 1 + namesIn(member)
		}
	case []any:
		for _, element := range v {
			n += namesIn(element)
		}
	}
	return n
}
