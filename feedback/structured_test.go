package feedback_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
