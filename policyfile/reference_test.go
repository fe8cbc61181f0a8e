package policyfile_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

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
	page := reference.NewPage("Policy files: reference", "Each key of a file of policies, from the table that the parser uses. [Policies in a file](../policyfile.md) says how to use a file, "+
		"and [`schema.json`](../../policyfile/schema.json) has the keys for editors.")
	page.Text("A key without a default may be left out unless it is **required**. Presets have the keys of [their options](../presets.md). A kind that may have the value \"nothing\" can stand alone: `penalty: retry-after`.")

	literal := func(text string) string { return quoted.ReplaceAllString(text, "`$1`") }
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
