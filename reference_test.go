package throttle_test

import (
	"go/doc"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/slogthrottle"
	"github.com/fleetthrottle/throttle/adapters/telemetry"
	"github.com/fleetthrottle/throttle/internal/lab/reference"
)

// TestReferenceOfEvents: docs/reference/events.md has each kind of event with its names, its level in logs and the fields that
// are about it, each field, and each attribute. $UPDATE writes the page.
func TestReferenceOfEvents(t *testing.T) {
	code := reference.ReadComments(t, ".", "")
	kinds, fields := code.Constants(t, "EventKind"), code.Fields(t, "Event")
	page := reference.NewPage("Events: reference", "Each event that `Config.Observe` gets, and its fields. [Events](../run/metrics.md#events) says what to do.")

	page.Section("Kinds")
	page.Text("The name is the `kind` in Prometheus, the attribute `" + telemetry.AttrEvent + "` elsewhere, and the message of a log line; the level is the default of `slogthrottle`. Every event has `Kind`, and `Policy`, `Budget` and `Limit` if a policy decided.")
	page.Table("event", "name", "level", "when", "fields")

	for i, k := range kinds {
		kind := throttle.EventKind(i + 1)
		name := telemetry.Kind(kind)
		require.Equal(t, "event"+strings.ReplaceAll(name, "_", ""), strings.ToLower(k.Name))
		page.Row(reference.Code(k.Name), reference.Code(name), strings.ToLower(slogthrottle.Level(kind).String()), code.Markdown(k.Comment), fieldsAbout(k, fields))
	}

	require.Equal(t, "unknown", throttle.EventKind(len(kinds)+1).String())

	page.Section("Fields")
	page.Table("field", "type", "meaning")

	for _, f := range fields {
		if f.Name != "Duration" {
			page.Row(reference.Code(f.Name), reference.Code(f.Type), code.Markdown(f.Comment))
			continue
		}
		page.Row(reference.Code(f.Name), reference.Code(f.Type), "see below")
	}

	duration := fields[slices.IndexFunc(fields, func(f reference.Name) bool { return f.Name == "Duration" })]
	page.Text(code.Markdown(duration.Comment))

	page.Section("Attributes")
	page.Text("Log lines have all attributes that have a value, metrics and spans some. Package [`telemetry`](../../adapters/telemetry) has the names as constants.")
	page.Table("attribute", "value")

	adapters := reference.ReadComments(t, ".", "adapters/telemetry")
	for _, c := range adapters.Constants(t, "") {
		if strings.HasPrefix(c.Name, "Attr") {
			page.Row(reference.Code(c.Value), adapters.Markdown(c.Comment))
		}
	}

	page.Row(reference.Code(slogthrottle.AttrOmitted), "in a log line: the number of lines of this kind and policy that were left out before it")

	page.Section("Classes of errors")
	page.Text("The values of `" + telemetry.AttrErrorType + "`. An event about a failure of the store has `" + strings.Join(telemetry.Causes(), "`, `") + "`.")
	page.Table("class", "of")

	for _, c := range adapters.Constants(t, "") {
		if strings.HasPrefix(c.Name, "Error") {
			page.Row(reference.Code(c.Value), c.Comment)
		}
	}

	page.Compare(t, ".", "events")
}

// fieldsAbout returns the fields whose comment names the kind, and the fields that the comment of the kind names.
func fieldsAbout(kind reference.Name, fields []reference.Name) string {
	var all []string
	for _, f := range fields {
		if regexp.MustCompile(`\b`+kind.Name+`\b`).MatchString(f.Comment) || regexp.MustCompile(`\b`+f.Name+`\b`).MatchString(kind.Comment) && f.Name != "Policy" {
			all = append(all, reference.Code(f.Name))
		}
	}
	return strings.Join(all, ", ")
}

// TestReferenceOfErrors: docs/reference/errors.md has each exported error of packages throttle and store. $UPDATE writes the page.
func TestReferenceOfErrors(t *testing.T) {
	page := reference.NewPage("Errors: reference", "Each error type and each error value of packages `throttle` and `store`. [Troubleshooting](../run/troubleshooting.md) explains the texts. "+
		"An `http.Client` wraps errors in a `*url.Error`, through which `errors.Is` and `errors.As` look. No error holds a URL, a token or a raw key.")
	page.Text("A caller whose own context ends while it waits gets an error that matches `context.Canceled` or `context.DeadlineExceeded`, and the cause of the context; its place in line was given back.")

	for _, name := range []string{"", "store"} {
		code := reference.ReadComments(t, ".", name)
		for _, group := range code.Vars {
			for _, v := range group.Names {
				if strings.HasPrefix(v, "Err") {
					page.Section(code.Name + "." + v)
					page.Text("`errors.Is(err, " + code.Name + "." + v + ")`")
					page.Text(code.Markdown(group.Doc))
				}
			}
		}

		for _, typ := range code.Types {
			if !slices.ContainsFunc(typ.Methods, func(f *doc.Func) bool { return f.Name == "Error" }) {
				continue
			}

			page.Section(code.Name + "." + typ.Name)
			page.Text("`errors.As(err, new(*" + code.Name + "." + typ.Name + "))`")
			page.Text(code.Markdown(typ.Doc))
			page.Table("field", "type", "meaning")

			for _, f := range code.Fields(t, typ.Name) {
				page.Row(reference.Code(f.Name), reference.Code(f.Type), code.Markdown(f.Comment))
			}
		}
	}

	page.Section("Problems of a place")
	page.Table("problem", "meaning")

	store := reference.ReadComments(t, ".", "store")
	for _, c := range store.Constants(t, "PlaceProblem") {
		page.Row(reference.Code(c.Name), c.Comment)
	}

	page.Compare(t, ".", "errors")
}
