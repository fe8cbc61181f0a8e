package feedback_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/feedback"
)

// serialize writes a List as section 4.1 of RFC 9651 says, with the parameters
// in order.
func serialize(list []item) string {
	var members []string
	for _, i := range list {
		members = append(members, serializeItem(i))
	}
	return strings.Join(members, ", ")
}

func serializeItem(i item) string {
	var b strings.Builder
	if inner, ok := feedback.Value(i).([]item); ok {
		var items []string
		for _, in := range inner {
			items = append(items, serializeItem(in))
		}
		b.WriteString("(" + strings.Join(items, " ") + ")")
	} else {
		b.WriteString(serializeValue(feedback.Value(i)))
	}
	p := feedback.Params(i)
	for _, key := range slices.Sorted(maps.Keys(p)) {
		b.WriteString(";" + key + "=" + serializeValue(p[key]))
	}
	return b.String()
}

func serializeValue(value any) string {
	switch v := value.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		s := strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	case string:
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
	case feedback.Token:
		return string(v)
	case []byte:
		return ":" + base64.StdEncoding.EncodeToString(v) + ":"
	case bool:
		return map[bool]string{true: "?1", false: "?0"}[v]
	case time.Time:
		return fmt.Sprintf("@%d", v.Unix())
	case feedback.Display:
		var b strings.Builder
		for _, c := range []byte(v) {
			fmt.Fprintf(&b, "%%%02x", c)
		}
		return `%"` + b.String() + `"`
	}
	return fmt.Sprintf("unknown type %T", value)
}

func FuzzStructuredFields(f *testing.F) {
	for _, field := range []string{
		"", `"burst";q=100;w=60,"daily";q=1000;w=86400`, `"peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:`,
		`"default";r=50;t=30`, "limit=100, remaining=50, reset=50", "100;w=60, 10000;w=86400", `(1 "a";b);c=1.5, ?0, @12, %"%c3%a9"`,
		`"a\"\\"`, "a;b;c=?0", "-0.5", "1,", "((", ":=:", "a=(", "\x00",
	} {
		f.Add(field)
	}
	f.Fuzz(func(t *testing.T, field string) {
		if list, ok := feedback.ParseList(field); ok {
			again, ok := feedback.ParseList(serialize(list))
			require.True(t, ok, "%q", serialize(list))
			require.Equal(t, list, again)
		} else {
			require.Nil(t, list)
		}
		if dict, ok := feedback.ParseDictionary(field); ok {
			var members []string
			for key, member := range dict {
				members = append(members, key+"="+serializeItem(member))
			}
			again, ok := feedback.ParseDictionary(strings.Join(members, ", "))
			require.True(t, ok, "%q", members)
			require.Equal(t, dict, again)
		}
		q, ok := feedback.RateLimit{}.Left(answer(200, "", "RateLimit", field, "RateLimit-Policy", field)).Left()
		if ok {
			require.GreaterOrEqual(t, q.Left, 0)
			require.Positive(t, q.Reset)
		}
	})
}
