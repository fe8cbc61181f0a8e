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

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

type (
	item   = feedback.Item
	params = map[string]any
)

// bare makes a list of items without parameters.
func bare(values ...any) (list []item) {
	for _, v := range values {
		list = append(list, feedback.NewItem(v, nil))
	}
	return list
}

// TestStructuredLists has a case for each rule of RFC 9651, section 4.2.
func TestStructuredLists(t *testing.T) {
	for field, want := range map[string][]item{
		"":                         nil,
		"  ":                       nil,
		"1":                        bare(int64(1)),
		" 1,2 ,\t3  ":              bare(int64(1), int64(2), int64(3)),
		"0, -0, 007, -42":          bare(int64(0), int64(0), int64(7), int64(-42)),
		"999999999999999":          bare(int64(999999999999999)),
		"1.5, -0.125, 0.0":         bare(1.5, -0.125, 0.0),
		"123456789012.125":         bare(123456789012.125),
		`"", "a b", "\"\\", "%;,"`: bare("", "a b", `"\`, "%;,"),
		"a, *, A:/b!#$%&'*+-.^_`|~": bare(feedback.Token("a"), feedback.Token("*"),
			feedback.Token("A:/b!#$%&'*+-.^_`|~")),
		"?1, ?0":                 bare(true, false),
		":aGk=:, :aGk:, ::":      bare([]byte("hi"), []byte("hi"), []byte{}),
		":sdfjLJUOUH==:, :aGl=:": bare([]byte("\xb1\xd7\xe3,\x95\x0eP"), []byte("hi")),
		"@1767323045, @-1":       bare(time.Unix(1767323045, 0).UTC(), time.Unix(-1, 0).UTC()),
		`%"a %e2%82%ac%22"`:      bare(feedback.Display("a €\"")),
		"1;a;b=2; c=x;*d_-.*=?0": {feedback.NewItem(int64(1), params{
			"a": true, "b": int64(2), "c": feedback.Token("x"), "*d_-.*": false})},
		"1;a=1;a=2":            {feedback.NewItem(int64(1), params{"a": int64(2)})},
		`(), ( 1  "a";b );c=1`: {feedback.NewItem([]item{}, nil), feedback.NewItem([]item{feedback.NewItem(int64(1), nil), feedback.NewItem("a", params{"b": true})}, params{"c": int64(1)})},
	} {
		t.Run(field, func(t *testing.T) {
			got, ok := feedback.ParseList(field)
			require.True(t, ok)
			require.Equal(t, want, got)
		})
	}
}

func TestStructuredDictionaries(t *testing.T) {
	for field, want := range map[string]map[string]item{
		"":    {},
		"a=1": {"a": feedback.NewItem(int64(1), nil)},
		"limit=100, remaining=50;x,\treset=?0": {
			"limit":     feedback.NewItem(int64(100), nil),
			"remaining": feedback.NewItem(int64(50), params{"x": true}),
			"reset":     feedback.NewItem(false, nil),
		},
		"a, b;x=1, *c=()": {
			"a":  feedback.NewItem(true, nil),
			"b":  feedback.NewItem(true, params{"x": int64(1)}),
			"*c": feedback.NewItem([]item{}, nil),
		},
		"a=1, a=2": {"a": feedback.NewItem(int64(2), nil)},
	} {
		t.Run(field, func(t *testing.T) {
			got, ok := feedback.ParseDictionary(field)
			require.True(t, ok)
			require.True(t, maps.EqualFunc(want, got, equal), "%v", got)
		})
	}
}

func equal(a, b item) bool { return serialize([]item{a}) == serialize([]item{b}) }

// TestMalformedFields: one mistake, and there is no field.
func TestMalformedFields(t *testing.T) {
	for _, field := range []string{
		"\t1", ",", "1,", "1, ", ",1", "1,,2", "1 2", "1;", "1;A=1", "1;=1", "1;a=", "1; ;b", "1;\ta", "1 ;a", "1;a =1", "1;a= 1",
		"-", "--1", "+1", "-a", "1000000000000000", "1.", ".5", "-.5", "1.1234", "1234567890123.1", "1.5.5", "1e3", "0x10",
		`"`, `"a`, `"a\"`, `"\a"`, "\"\x7f\"", "\"\t\"", `"é"`, `'a'`, "a\"b\"",
		":", ":a", ":aGk", ":a:", ":aGk==:", ":a=Gk:", ":a Gk=:", ":aGk=\n:", ":a_-=:",
		"?", "?2", "?true", "?10", "@", "@1.5", "@a", "@-", "%", "%a", `%"`, `%"%"`, `%"%E2"`, `%"%e"`, `%"%ff"`, "%\"\n\"", `%"é"`,
		"(", "(1", "(1,2)", "(1)(2)", "(1;)", "((1))", "(1\t2)", "(1\"a\")", ")", "()x",
		"é", "\x00", "1\x00", "{}", "!", "=1",
	} {
		t.Run(field, func(t *testing.T) {
			list, ok := feedback.ParseList(field)
			require.False(t, ok)
			require.Nil(t, list)
			if field[0] != '=' {
				dict, ok := feedback.ParseDictionary("a=" + field)
				require.False(t, ok)
				require.Nil(t, dict)
			}
		})
	}
	for _, field := range []string{"A=1", "1", `"a"=1`, "a=1,", "a=", "a =1", "a= 1", "a==1", "a=1 b=2", "-a=1", "a=1;B", "é=1", "=1"} {
		t.Run(field, func(t *testing.T) {
			dict, ok := feedback.ParseDictionary(field)
			require.False(t, ok)
			require.Nil(t, dict)
		})
	}
}

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

// TestRateLimit is about the lists of draft-ietf-httpapi-ratelimit-headers-10
// (27 September 2025).
func TestRateLimit(t *testing.T) {
	const s = time.Second
	daily := []string{"RateLimit-Policy", `"burst";q=100;w=60,"daily";q=1000;w=86400`}
	for _, c := range []struct {
		name, policy string
		fields       []string
		want         *throttle.Quota
	}{
		{"one", "", []string{"RateLimit", `"default";r=50;t=30`}, left(50, 30*s)},
		{"by name", "default", []string{"RateLimit", `"default";r=50;t=30`}, left(50, 30*s)},
		{"another name", "other", []string{"RateLimit", `"default";r=50;t=30`}, nil},
		{"names have cases", "Default", []string{"RateLimit", `"default";r=50;t=30`}, nil},
		{"the least of two", "", []string{"RateLimit", `"burst";r=5;t=1, "daily";r=3;t=4000`}, left(3, 4000*s)},
		{"one of two", "burst", []string{"RateLimit", `"burst";r=5;t=1, "daily";r=3;t=4000`}, left(5, s)},
		{"in two lines", "daily", []string{"RateLimit", `"burst";r=5;t=1`, "RateLimit", `"daily";r=3;t=4000`}, left(3, 4000*s)},
		{"other parameters", "", []string{"RateLimit", `"default";x=1.5;r=50;y;z="a";t=30`}, left(50, 30*s)},
		{"a partition", "", []string{"RateLimit", `"default";r=999;t=1;pk=:dHJpYWwxMjEzMjM=:`}, left(999, s)},
		{"a partition with pad bits", "", []string{"RateLimit", `"default";r=999;t=1;pk=:sdfjLJUOUH==:`}, left(999, s)},
		{"two partitions", "", []string{"RateLimit", `"a";r=9;t=2;pk=:YQ==:,"a";r=8;t=1;pk=:Yg==:`}, left(8, s)},
		{"more than a number of ours", "", []string{"RateLimit", `"default";r=999999999999999;t=30`}, left(1<<31-1, 30*s)},
		{"a long time", "", []string{"RateLimit", `"default";r=1;t=999999999999999`}, left(1, throttle.MaxPenalty)},

		{"without t nobody says for how long", "burst", append(daily, "RateLimit", `"burst";r=5`), left(5, time.Second)},
		{"t is nearer than the window", "burst", append(daily, "RateLimit", `"burst";r=5;t=7`), left(5, 7*s)},
		{"no t, no window", "other", append(daily, "RateLimit", `"other";r=5`), nil},
		{"no t, and policies that are malformed", "burst",
			[]string{"RateLimit", `"burst";r=5`, "RateLimit-Policy", `"burst";q=100;w=60,`}, nil},
		{"no t, and a window of another type", "burst",
			[]string{"RateLimit", `"burst";r=5`, "RateLimit-Policy", `"burst";q=100;w="60"`}, nil},
		{"no t, and policies of an older draft", "", []string{"RateLimit", `"burst";r=5`, "RateLimit-Policy", `100;w=60`}, nil},
		{"bytes are not requests", "",
			[]string{"RateLimit", `"size";r=5;t=1,"n";r=6;t=1`, "RateLimit-Policy", `"size";q=9;qu="content-bytes","n";q=9;qu="requests"`},
			left(6, s)},
		{"bytes, if they are asked for", "size",
			[]string{"RateLimit", `"size";r=5;t=1,"n";r=6;t=1`, "RateLimit-Policy", `"size";q=9;qu="content-bytes"`}, left(5, s)},
		{"a unit of another type", "",
			[]string{"RateLimit", `"size";r=5;t=1`, "RateLimit-Policy", `"size";q=9;qu=bytes`}, left(5, s)},

		{"Atlassian: far from the limit", "", []string{"RateLimit", `"global-app-quota";t=600`}, nil},
		{"far from one limit", "", []string{"RateLimit", `"a";t=600, "b";r=3;t=2`}, left(3, 2*s)},
		{"the time has come", "", []string{"RateLimit", `"default";r=50;t=0`}, nil},
		{"no name", "", []string{"RateLimit", `default;r=50;t=30`}, nil},
		{"a decimal", "", []string{"RateLimit", `"default";r=50.0;t=30`}, nil},
		{"negative", "", []string{"RateLimit", `"default";r=-1;t=30`}, nil},
		{"negative time", "", []string{"RateLimit", `"default";r=50;t=-30`}, nil},
		{"a text", "", []string{"RateLimit", `"default";r="50";t=30`}, nil},
		{"a partition of another type", "", []string{"RateLimit", `"default";r=50;t=30;pk="a"`}, nil},
		{"one malformed member spoils all", "", []string{"RateLimit", `"a";r=50;t=30, "b";r=x`}, nil},
		{"one time that is negative spoils all", "", []string{"RateLimit", `"a";r=50;t=-1, "b";r=3;t=2`}, nil},
		{"one window that is negative spoils all", "burst",
			[]string{"RateLimit", `"burst";r=5`, "RateLimit-Policy", `"burst";q=100;w=60,"daily";q=1;w=-1`}, nil},
		{"a comma at the end", "", []string{"RateLimit", `"a";r=50;t=30,`}, nil},
		{"16 digits", "", []string{"RateLimit", `"a";r=1000000000000000;t=30`}, nil},
		{"an inner list", "", []string{"RateLimit", `("a" "b");r=50;t=30`}, nil},
		{"nothing", "", nil, nil},
		{"an empty field", "", []string{"RateLimit", ""}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireQuota(t, c.want, feedback.RateLimit{Name: c.policy}.Left, answer(200, "", c.fields...))
		})
	}
	t.Run("a trailer", func(t *testing.T) {
		resp := answer(200, "")
		resp.Trailer = answer(200, "", "RateLimit", `"default";r=50;t=30`).Header
		requireQuota(t, nil, feedback.RateLimit{}.Left, resp)
	})
	t.Run("Atlassian: a prefix", func(t *testing.T) {
		resp := answer(200, "", "Beta-RateLimit", `"global-app-quota";r=11000`,
			"Beta-RateLimit-Policy", `"global-app-quota";q=65000;w=3600`)
		requireQuota(t, left(11000, time.Second), feedback.RateLimit{Prefix: "Beta-"}.Left, resp)
		requireQuota(t, nil, feedback.RateLimit{}.Left, resp)
	})
}

func TestRateLimitOfOlderDrafts(t *testing.T) {
	for _, c := range []struct {
		name   string
		fields []string
		want   *throttle.Quota
	}{
		{"-07: a dictionary", []string{"RateLimit", "limit=100, remaining=50, reset=50"}, left(50, 50*time.Second)},
		{"-07: in two lines", []string{"RateLimit", "limit=100", "RateLimit", "remaining=50, reset=50"}, left(50, 50*time.Second)},
		{"-07: with policies", []string{"RateLimit", "limit=100, remaining=50, reset=50",
			"RateLimit-Policy", "100;w=60, 10000;w=86400"}, left(50, 50*time.Second)},
		{"-07: nothing left to say", []string{"RateLimit", "limit=100"}, nil},
		{"-07: a decimal", []string{"RateLimit", "limit=100, remaining=5.0, reset=50"}, nil},
		{"-07: negative", []string{"RateLimit", "limit=100, remaining=-5, reset=50"}, nil},
		{"-06: three fields", []string{"RateLimit-Limit", "100", "RateLimit-Remaining", "50", "RateLimit-Reset", "50"},
			left(50, 50*time.Second)},
		{"-06: with a policy", []string{"RateLimit-Limit", "100, 100;w=60", "RateLimit-Remaining", "50",
			"RateLimit-Reset", "50", "RateLimit-Policy", "100;w=60"}, left(50, 50*time.Second)},
		{"-06: no reset", []string{"RateLimit-Remaining", "50"}, nil},
		{"the newest counts", []string{"RateLimit", `"a";r=7;t=3`, "RateLimit-Remaining", "50", "RateLimit-Reset", "50"},
			left(7, 3*time.Second)},
		{"unless it is malformed", []string{"RateLimit", `"a";r=7;t=`, "RateLimit-Remaining", "50", "RateLimit-Reset", "50"},
			left(50, 50*time.Second)},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireQuota(t, c.want, feedback.RateLimit{}.Left, answer(200, "", c.fields...))
			requireQuota(t, nil, feedback.RateLimit{Name: "b"}.Left, answer(200, "", c.fields...)) // there were no names
		})
	}
}

func TestPenaltiesOfRateLimit(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		fields []string
		want   time.Duration
	}{
		{"nothing left", 429, []string{"RateLimit", `"default";r=0;t=30`}, 30 * time.Second},
		{"without t, for the window", 429, []string{"RateLimit", `"default";r=0`, "RateLimit-Policy", `"default";q=9;w=60`}, time.Minute},
		{"nothing left for the next", 200, []string{"RateLimit", `"default";r=0;t=30`}, 0},
		{"some left", 429, []string{"RateLimit", `"default";r=1;t=30`}, 0},
		{"nothing said", 429, nil, 0},
		{"Retry-After wins", 429, []string{"RateLimit", `"default";r=0;t=30`, "Retry-After", "2"}, 2 * time.Second},
		{"longer, too", 503, []string{"RateLimit", `"default";r=0;t=30`, "Retry-After", "90"}, 90 * time.Second},
		{"some left, of a limit that has not refused", 429, []string{"RateLimit", `"default";r=1;t=30`, "Retry-After", "7"}, 7 * time.Second},
		{"some left of a 403", 403, []string{"RateLimit", `"default";r=1;t=30`, "Retry-After", "7"}, 0},
		{"malformed", 429, []string{"RateLimit", `"default";r=`, "Retry-After", "7"}, 7 * time.Second},
		{"nothing left and nothing else said", 429, []string{"RateLimit", `"default";r=0`}, time.Second},
		{"nothing left, and more now", 429, []string{"RateLimit", `"default";r=0;t=0`}, time.Second},
		{"the least of two without a time", 429, []string{"RateLimit", `"a";r=5;t=60, "b";r=0`}, time.Second},
		{"a dictionary without a time", 429, []string{"RateLimit", `limit=9, remaining=0`}, time.Second},
		{"old fields without a time", 429, []string{"RateLimit-Remaining", "0"}, time.Second},
		{"old fields of another limit", 429, []string{"RateLimit-Remaining", "9", "RateLimit-Reset", "9", "Retry-After", "7"}, 7 * time.Second},
		{"Retry-After alone", 429, []string{"Retry-After", "7"}, 7 * time.Second},
		{"Retry-After out of a cache", 429, []string{"Retry-After", "7", "Age", "7"}, 7 * time.Second},
		{"not where it says when to follow", 303, []string{"RateLimit", `"default";r=0;t=30`, "Retry-After", "90"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireCloses(t, c.want, feedback.RateLimit{}.Answer(answer(c.status, "", c.fields...)))
		})
	}
}
