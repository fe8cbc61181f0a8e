package policyfile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/reference"
	"github.com/fleetthrottle/throttle/policyfile"
)

// mistaken are rows of which a part can only be a mistake.
var mistaken = []string{
	`name: "", match: /, limit: 1/s`,
	`name: a, limit: 1/s`,
	`name: a, match: get b.example.com/, limit: 1/s`,
	`name: a, match: GETT b.example.com/, limit: 1/s`,
	`name: a, match: none, limit: 1/s, penalty: none`,
	`name: a, match: none, limit: 1/s, key: "{host}"`,
	`name: a, match: /, limit: 1/s, keyed: yes`,
	`name: a, match: /, limit: 1/s, key: "{store}"`,
	`name: a, match: /, limit: 1/s, key: "{header.Host}"`,
	`name: a, match: /, limit: 1/s, key: "{route}"`,
	`name: a, match: /, limit: 1/s, routes: [/a]`,
	`name: a, match: /, limit: 1/s, key: "{route}", routes: ["/{x}", /a]`,
	`name: a, match: /, limit: 1/s, cost: 2`,
	`name: a, match: /, limit: 1/s, cost: "{host}"`,
	`name: a, match: /, limit: 1/s, weight: 2`,
	`name: a, match: /, limit: 1/s, share: "{host}", weight: 1001`,
	`name: a, match: /, limit: 2 in flight, share: "{host}"`,
	`name: a, match: /, limit: unlimited, quota: ratelimit`,
	`name: a, match: /, limit: 1/s, cost: 0, settle: {amount: {fields: a}}`,
	`name: a, match: /, limit: 2 in flight, settle: {amount: {fields: a}}`,
	`name: a, match: /, limit: 1/s, acted: graphql, penalty: none`,
	`name: a, match: /, limit: 1/s, penalty: {for: 1m}`,
	`name: a, match: /, limit: 1/s, penalty: another-row`,
	`name: a, match: /, limit: 1/s, penalty: {when: {penalty: none}}`,
	`name: a, match: /, limit: 1/s, penalty: {when: {host: "a:80", penalty: none}}`,
	`name: a, match: /, limit: 1/s, penalty: {text: {pattern: "x*", lasts: 1s}}`,
	`name: a, match: /, limit: 1/s, penalty: {headers: {limit: X-Limit}}`,
	`name: a, match: /, limit: 1/s, penalty: []`,
	`name: a, match: /, limit: 1/s, jitter: 0`,
	`name: a, match: /, limit: 1/s, headroom: {low: 1}`,
}

// quoted are the words of a doc that a file has literally.
var quoted = regexp.MustCompile(`"([^"]+)"`)

// literal returns a doc with the quoted words as code.
func literal(text string) string { return quoted.ReplaceAllString(text, "`$1`") }

// linked returns the form of a value with links to the sections of the mappings that it names.
func linked(form string) string {
	parts := strings.Split(form, ", or ")
	for i, part := range parts {
		for _, m := range policyfile.Mappings() {
			if name := strings.ToLower(m.Name); name == part {
				parts[i] = "[" + part + "](#" + strings.ReplaceAll(name, " ", "-") + ")"
			}
		}
	}
	return strings.Join(parts, ", or ")
}

// TestReference: docs/reference/policyfile.md has each key of a file as the parser has it, the bounds of a file, and the
// message about each of some mistakes. $UPDATE writes the page.
func TestReference(t *testing.T) {
	page := reference.NewPage("Policy files: reference", "Each key of a file of policies, from the table that the parser uses. [Policies in a file](../use/policyfile.md) says how to use a file, "+
		"and [`schema.json`](../../policyfile/schema.json) has the keys for editors.")
	page.Text("A key without a default may be left out unless it is **required**. Presets have the keys of [their options](presets.md). A kind that may have the value \"nothing\" can stand alone: `penalty: retry-after`.")

	for _, m := range policyfile.Mappings() {
		page.Section(m.Name)
		page.Table("key", "value", "default", "meaning")

		for _, k := range m.Keys {
			require.NotEmpty(t, k.Form, "%s: %s", m.Name, k.Name)
			usual := literal(k.Usual)
			if k.Required {
				usual = "**required**"
			}

			page.Row(reference.Code(k.Name), linked(literal(k.Form)), usual, literal(k.Doc))
		}
	}

	page.Section("Answers in forms of their own")
	forms, err := os.ReadFile("testdata/forms.yaml")
	require.NoError(t, err)
	page.Text("```yaml\n" + string(forms) + "```")

	page.Section("Bounds")
	page.Table("a file has", "at most")
	page.Row("bytes", fmt.Sprint(policyfile.MostBytes))
	page.Row("bytes of a value", fmt.Sprint(policyfile.MostText))
	page.Row("levels", fmt.Sprint(policyfile.MostDepth))
	page.Row("values that aliases and merge keys repeat", fmt.Sprint(policyfile.MostRepeated))

	page.Section("Mistakes")
	page.Text("A row is also refused if a part of it can only be a mistake. Each line of the first column is a row of `policies`.")
	page.Table("row", "message")

	for _, row := range mistaken {
		_, err := policyfile.Parse("f", []byte("version: 1\npolicies: [{"+row+"}]\n"))
		require.Error(t, err, row)
		message, _, _ := strings.Cut(err.Error(), "\n")
		page.Row(reference.Code(row), regexp.MustCompile(`^f:\d+:\d+: `).ReplaceAllString(message, ""))
	}

	page.Compare(t, "..", "policyfile")
}

// learned is the number of a limit that an answer lowers to the true number.
const learned = 1_000_000_000

// TestReferenceOfPresets: docs/reference/presets.md has each preset with its rows, and with its options in a file. The sources
// are those of the preset's own page, which tests compare with the rows. $UPDATE writes the page.
func TestReferenceOfPresets(t *testing.T) {
	page := reference.NewPage("Presets: reference", "The APIs that the library knows: what each preset limits without options, and its options. [Presets](../use/presets.md) says how to use them. "+
		"The page of a preset says what closes each row, and links the source of each number: *official* is the provider's own page, *observed* an answer or a report, *inferred* a conclusion.")
	page.Table("preset", "what it is for", "hosts", "rows and limits", "sources")
	for _, p := range policyfile.PresetDocs() {
		f, err := policyfile.Parse(p.Name, []byte("version: 1\npresets: ["+p.Name+"]\n"))
		require.NoError(t, err)

		var hosts, rows []string
		for _, row := range f.Policies {
			host := row.Match[strings.LastIndex(row.Match[:strings.Index(row.Match, "/")], " ")+1 : strings.Index(row.Match, "/")]
			if code := reference.Code(host); !slices.Contains(hosts, code) && host != "" {
				hosts = append(hosts, code)
			}
			limit := row.Limit.String()
			if row.Limit.N() == learned {
				limit = "learned from answers"
			}
			rows = append(rows, reference.Code(row.Name)+" "+limit)
		}
		if len(hosts) == 0 {
			hosts = []string{"every host"}
		}

		page.Row("["+reference.Code(p.Name)+"](../presets/"+p.Name+".md)", p.Doc, strings.Join(hosts, ", "), strings.Join(rows, ", "), sourcesOf(t, p.Name))
	}

	page.Section("Options in a file")
	page.Text("In Go the options are fields of `Options`, or of `policyfile.PresetOptions`. None is required. `caller` has a [key](policyfile.md#a-policy) for each id: `caller: {app: \"{header.X-App}\"}`.")
	page.Table("preset", "option", "value", "meaning")
	for _, k := range policyfile.PresetDocs()[0].Options {
		if inAll(k.Name) {
			page.Row("all", reference.Code(k.Name), literal(k.Form), literal(k.Doc))
		}
	}
	for _, p := range policyfile.PresetDocs() {
		for _, k := range p.Options {
			require.False(t, k.Required, "%s: %s", p.Name, k.Name)
			if !inAll(k.Name) {
				page.Row(p.Name, reference.Code(k.Name), literal(k.Form), literal(k.Doc))
			}
		}
	}
	page.Compare(t, "..", "presets")
}

// inAll reports whether every preset has the option.
func inAll(option string) bool { return option == "shadow" || option == "host" }

// sourcesOf returns the kinds and the months of the sources on the page of a preset.
func sourcesOf(t *testing.T, preset string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/presets/" + preset + ".md")
	require.NoError(t, err)

	seen := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		for _, word := range regexp.MustCompile(`\b(?:official|observed|inferred|20\d\d-\d\d)\b`).FindAllString(cells[len(cells)-1], -1) {
			seen[word] = true
		}
	}
	require.NotEmpty(t, seen, preset)

	words := slices.Sorted(maps.Keys(seen))
	dates := slices.IndexFunc(words, func(w string) bool { return w[0] != '2' })
	require.Positive(t, dates, preset)
	return strings.Join(words[dates:], ", ") + ", " + words[dates-1]
}

// TestDocs: the reference has each field and each kind that the form has, but for the options of presets, and the example of
// docs/use/policyfile.md is a file that passes its tests.
func TestDocs(t *testing.T) {
	keys := make(map[string]bool)
	for _, m := range policyfile.Mappings() {
		for _, k := range m.Keys {
			keys[k.Name] = true
		}
	}
	var schema map[string]any
	require.NoError(t, json.Unmarshal(policyfile.Schema(), &schema))
	for name := range schema["$defs"].(map[string]any) {
		if strings.HasPrefix(name, "preset") {
			delete(schema["$defs"].(map[string]any), name)
		}
	}
	for name := range names(schema) {
		require.True(t, keys[name], name)
	}

	page, err := os.ReadFile("../docs/use/policyfile.md")
	require.NoError(t, err)
	_, example, ok := strings.Cut(string(page), "```yaml\n")
	require.True(t, ok)
	example, _, _ = strings.Cut(example, "```")
	f, err := policyfile.Parse("example", []byte(example))
	require.NoError(t, err)
	require.NoError(t, f.Check())
}

// names returns all names of properties.
func names(v any) map[string]bool {
	all := make(map[string]bool)
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if properties, ok := value.(map[string]any); ok && key == "properties" {
				for name := range properties {
					all[name] = true
				}
			}
			for name := range names(value) {
				all[name] = true
			}
		}
	case []any:
		for _, value := range v {
			for name := range names(value) {
				all[name] = true
			}
		}
	}
	return all
}

// compiled is the schema, ready to be asked.
func compiled(t testing.TB) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(policyfile.Schema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("policies.json", doc))
	s, err := c.Compile("policies.json")
	require.NoError(t, err)
	return s
}

// TestSchema: the schema takes the good file, and sees what it can see in a bad one.
func TestSchema(t *testing.T) {
	s := compiled(t)
	good, err := os.ReadFile("testdata/good.yaml")
	require.NoError(t, err)
	for _, v := range asJSON(t, good) {
		require.NoError(t, s.Validate(v))
	}

	for _, text := range []string{
		"policies: []",
		"version: 1\npolicy: []",
		"version: 1\npolicies: [{name: a}]",
		"version: 1\npolicies: [{name: a, match: /, limit: 1/s, shadow: perhaps}]",
		"version: 1\npolicies: [{name: a, match: /, limit: 1/s, penalty: {cods: {}}}]",
		"version: 1\npresets: [dingding]",
		"version: 1\npresets: [{github: {perhour: 1}}]",
	} {
		for _, v := range asJSON(t, []byte(text)) {
			require.Error(t, s.Validate(v), text)
		}
		_, err := policyfile.Parse("", []byte(text))
		require.Error(t, err, text)
	}
}

// TestSchemaIsCommitted: the file that editors are given is the schema.
func TestSchemaIsCommitted(t *testing.T) {
	golden(t, "schema.json", string(policyfile.Schema()))
}

// FuzzParse: what sound requires holds for every text.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(f, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(text)
	}
	s := compiled(f)
	for _, text := range corpus(f) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { sound(t, s, text) })
}
