package feedback_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

type lasts = map[string]time.Duration

// dingtalk is a table like DingTalk's.
var dingtalk = feedback.Codes{
	Fields: []string{"sub_code", "errcode", "code"},
	Lasts: lasts{
		"90018":         time.Second,
		"90006":         time.Minute,
		"-7":            3 * time.Second,
		"true":          4 * time.Second,
		"1.5":           5 * time.Second,
		"*QpsLimitFor*": 6 * time.Second,
		"*LimitForApi":  7 * time.Second,
		"forbidden.*":   8 * time.Second,
		"Forbidden.Yes": 2 * time.Second,
		"none":          0,
		"forever":       1000 * time.Hour,
	},
	NotRefused: []string{"money"},
}

// TestCodesOfAnyLetters: the lower case of a letter may have fewer bytes, or more.
func TestCodesOfAnyLetters(t *testing.T) {
	for _, code := range []string{"LİMİT", "ȺX"} {
		codes := feedback.Codes{Fields: []string{"code"}, Lasts: lasts{code: time.Second}}
		requireCloses(t, time.Second, codes.Answer(jsonAnswer(200, `{"code":"`+code+`"}`)), code)
	}
}

func TestCodes(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       time.Duration
	}{
		{"a number", `{"errcode":90018,"errmsg":"…"}`, time.Second},
		{"a text", `{"errcode":"90018"}`, time.Second},
		{"spaces", " {\r\n\t\"errcode\" : \" 90018 \" }\n", time.Second},
		{"wrapped", `{"errcode":88,"sub_code":"90018","errmsg":"…"}`, time.Second},
		{"wrapped, the other way round", `{"sub_code":90018,"errcode":88}`, time.Second},
		{"the first field decides", `{"errcode":90018,"sub_code":"40014"}`, 0},
		{"the second field decides", `{"errcode":0,"code":"Forbidden.Yes"}`, 0},
		{"unless it is null", `{"errcode":90018,"sub_code":null}`, time.Second},
		{"or empty", `{"errcode":90018,"sub_code":""}`, time.Second},
		{"or blank", `{"errcode":90018,"sub_code":" "}`, time.Second},
		{"or an object", `{"errcode":90018,"sub_code":{"code":"90006"}}`, time.Second},
		{"or a list", `{"errcode":90018,"sub_code":["90006"]}`, time.Second},
		{"behind others", `{"a":{"errcode":1,"x":[1,{"y":"]}"}]},"b":[[],{}],"c":-1.5e3,"errcode":90018}`, time.Second},
		{"negative", `{"errcode":-7}`, 3 * time.Second},
		{"true", `{"errcode":true}`, 4 * time.Second},
		{"decimal", `{"errcode":1.5}`, 5 * time.Second},
		{"escapes", `{"err\u0063ode":"9001\u0038"}`, time.Second},
		{"a quote in a name", `{"a\"b":1,"errcode":90018}`, time.Second},
		{"a quote in a text", `{"a":"b\\","c":"\"","errcode":90018}`, time.Second},
		{"a byte order mark", "\ufeff" + `{"errcode":90018}`, time.Second},
		{"twice: the first counts", `{"errcode":90018,"errcode":0}`, time.Second},
		{"twice: the first counts, though unknown", `{"errcode":0,"errcode":90018}`, 0},
		{"cases", `{"code":"forbidden.accessdenied.QPSLIMITFORAPI"}`, 8 * time.Second},
		{"the longest", `{"code":"X.QpsLimitForApi"}`, 7 * time.Second},
		{"a part", `{"code":"X.QpsLimitForAppkeyAndApi"}`, 6 * time.Second},
		{"the whole counts", `{"code":"Forbidden.Yes"}`, 2 * time.Second},
		{"more than the cap", `{"code":"forever"}`, throttle.MaxPenalty},
		{"certainly no refusal", `{"code":"money"}`, no},
		{"known to be nothing", `{"code":"none"}`, 0},

		{"success", `{"errcode":0,"errmsg":"ok"}`, 0},
		{"another code", `{"errcode":40014}`, 0},
		{"longer", `{"errcode":900180}`, 0},
		{"shorter", `{"errcode":9001}`, 0},
		{"zeros", `{"errcode":"090018"}`, 0},
		{"another number", `{"errcode":90018.0}`, 0},
		{"another field", `{"error_code":90018}`, 0},
		{"fields have cases", `{"ErrCode":90018}`, 0},
		{"deeper", `{"error":{"errcode":90018}}`, 0},
		{"in a list", `[{"errcode":90018}]`, 0},
		{"in a text", `{"errmsg":"{\"errcode\":90018}"}`, 0},
		{"no object", `"errcode"`, 0},
		{"no JSON", `errcode 90018`, 0},
		{"HTML", `<html>{"errcode":90018}`, 0},
		{"nothing", ``, 0},
		{"half a mark", "\ufeff"[:2], 0},
		{"NUL", "\x00{\"errcode\":90018}", 0},

		{"cut off behind the code", `{"errcode":90018,"result":[1,2`, time.Second},
		{"cut off at its end", `{"errcode":90018,`, time.Second},
		{"cut off in the code", `{"errcode":90018`, 0},
		{"cut off in the text", `{"errcode":"90018`, 0},
		{"cut off in an escape", `{"errcode":"90018\`, 0},
		{"malformed behind the code", `{"errcode":90018,,}`, time.Second},
		{"malformed before", `{,"errcode":90018}`, 0},
		{"no comma", `{"a":1 "errcode":90018}`, 0},
		{"no colon", `{"a" 1,"errcode":90018}`, 0},
		{"no name", `{1:1,"errcode":90018}`, 0},
		{"no value", `{"a":,"errcode":90018}`, 0},
		{"nothing but commas", `{"a":,,"errcode":90018}`, 0},
		{"brackets the wrong way round", `{"a":][1,"errcode":90018}`, 0},
		{"too many brackets", `{"a":1}],"errcode":90018}`, 0},
		{"a word", `{"errcode":money}`, 0},
		{"a number without sense", `{"errcode":0090018}`, 0},
		{"a line in a text", "{\"errcode\":\"money\n\"}", 0},
		{"an escape without sense", `{"errcode":"\money"}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, status := range []int{200, 400, 403, 503} {
				resp := jsonAnswer(status, c.body)
				requireCloses(t, c.want, dingtalk.Answer(resp))
				requireBody(t, c.body, resp)
			}
		})
	}
}

func TestCodesInDepth(t *testing.T) {
	for _, c := range []struct {
		name, field, body string
		found             bool
	}{
		{"an object", "error.code", `{"error":{"type":"tokens","code":"X"}}`, true},
		{"another object", "error.code", `{"code":"X","err":{"code":"X"}}`, false},
		{"no object", "error.code", `{"error":"X"}`, false},
		{"the object itself", "error", `{"error":{"error":"X"}}`, false},
		{"an element", "errors.0.code", `{"errors":[{"code":"X"},{"code":"Y"}]}`, true},
		{"another element", "errors.0.code", `{"errors":[{"code":"Y"},{"code":"X"}]}`, false},
		{"the second element", "errors.1.code", `{"errors":[{"code":"Y"},{"code":"X"}]}`, true},
		{"too few elements", "errors.1.code", `{"errors":[{"code":"X"}]}`, false},
		{"any element", "errors.*.extensions.code", `{"errors":[{"extensions":{"code":"Y"}},{"extensions":{"code":"X"}}],"data":null}`, true},
		{"none of the elements", "errors.*.extensions.code", `{"errors":[{"extensions":{"code":"Y"}},{}],"data":"X"}`, false},
		{"no elements", "errors.*.extensions.code", `{"errors":[]}`, false},
		{"any member", "*.code", `{"a":{"code":"Y"},"b":{"code":"X"}}`, true},
		{"a list of errors", "0.code", `[{"code":"X"}]`, true},
		{"any of a list", "*.code", `[{"code":"Y"},[],{"code":"X"}]`, true},
		{"a text in a list", "errors.0", `{"errors":["X"]}`, true},
		{"a number as a name", "0.code", `{"0":{"code":"X"}}`, true},
		{"a list that is cut off", "*.code", `[{"code":"X"},`, true},
		{"a comma too much", "*.code", `[1,,{"code":"X"}]`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want time.Duration
			if c.found {
				want = time.Second
			}
			codes := feedback.Codes{Fields: []string{c.field}, Lasts: lasts{"x": time.Second}}
			requireCloses(t, want, codes.Answer(jsonAnswer(200, c.body)))
		})
	}
}

// TestOneIsEnough: what comes after it takes nothing back.
func TestOneIsEnough(t *testing.T) {
	codes := feedback.Codes{
		Fields: []string{"code", "errors.*.code"},
		Lasts:  lasts{"X": time.Second, "Y": time.Minute},
	}
	for body, want := range map[string]time.Duration{
		`{"errors":[{"code":"X"},{"code":"Z"}]}`:              time.Second,
		`{"errors":[{"code":"Z"},{"code":"X"}]}`:              time.Second,
		`{"errors":[{"code":"X"},{"code":"Y"}]}`:              time.Second,
		`{"errors":[{"code":"X"}],"code":"Y"}`:                time.Minute,
		`{"errors":[{"code":"X"}],"code":"Z"}`:                0,
		`{"code":null,"errors":[{"code":null},{"code":"X"}]}`: time.Second,
	} {
		requireCloses(t, want, codes.Answer(jsonAnswer(200, body)), body)
	}
}

func TestCodesWithinTheirField(t *testing.T) {
	within := feedback.Codes{
		Fields:  []string{"errmsg"},
		Pattern: regexp.MustCompile(`subcode=(\d+)`),
		Lasts:   lasts{"90002": time.Second},
	}
	for body, want := range map[string]time.Duration{
		`{"errcode":88,"errmsg":"ding talk error[subcode=90002,submsg=…]"}`: time.Second,
		`{"errcode":88,"errmsg":"ding talk error[subcode=40014,submsg=…]"}`: 0,
		`{"errcode":88,"errmsg":"90002"}`:                                   0,
	} {
		requireCloses(t, want, within.Answer(jsonAnswer(200, body)))
	}
	within.Pattern = regexp.MustCompile(`\d+`)
	requireCloses(t, time.Second, within.Answer(jsonAnswer(200, `{"errmsg":"code 90002."}`)))
}

func TestCodesWithAnEnd(t *testing.T) {
	for _, c := range []struct {
		name       string
		code       string
		said, want time.Duration
	}{
		{"it says", "90018", 5 * time.Minute, 5 * time.Minute},
		{"shorter", "90006", time.Second, time.Second},
		{"it does not say", "90018", 0, time.Second},
		{"too long", "90018", 1000 * time.Hour, throttle.MaxPenalty},
		{"a code of another budget", "none", time.Minute, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			codes := dingtalk
			codes.End = feedback.For(c.said)
			requireCloses(t, c.want, codes.Answer(jsonAnswer(200, `{"code":"`+c.code+`"}`)))
		})
	}
	codes := dingtalk
	codes.End = func(*http.Response) throttle.Answer {
		t.Error("asked about no refusal")
		return throttle.Refused(time.Minute)
	}
	requireCloses(t, 0, codes.Answer(jsonAnswer(200, `{"errcode":0}`)))
	requireCloses(t, no, codes.Answer(jsonAnswer(200, `{"code":"money"}`)))
}

// TestCodesAreFoundInTheFirstBytes: a body may be longer than what is looked at.
func TestCodesAreFoundInTheFirstBytes(t *testing.T) {
	const head = `{"errcode":90018,`
	long := head + `"result":"` + strings.Repeat("x", 100<<10) + `"}`
	late := `{"result":"` + strings.Repeat("x", 64<<10) + `","errcode":90018}`
	for _, c := range []struct {
		name string
		max  int64
		body string
		want time.Duration
	}{
		{"early", 0, long, time.Second},
		{"late", 0, late, 0},
		{"late, and more cannot be asked for", 1 << 30, late, 0},
		{"just enough", int64(len(head)), long, time.Second},
		{"the code might go on", int64(len(head) - 1), long, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			codes := dingtalk
			codes.Max = c.max
			resp := jsonAnswer(200, c.body)
			requireCloses(t, c.want, codes.Answer(resp))
			requireBody(t, c.body, resp)
		})
	}
}

// TestHostileBodies: neither depth nor size makes more than one pass of what is
// looked at.
func TestHostileBodies(t *testing.T) {
	for name, body := range map[string]string{
		"deep lists":         strings.Repeat("[", 64<<10),
		"deep objects":       strings.Repeat(`{"a":`, 16<<10),
		"deep along a path":  strings.Repeat(`{"*":`, 16<<10),
		"a long number":      `{"errcode":` + strings.Repeat("9", 100<<10) + "}",
		"a long exponent":    `{"errcode":1e` + strings.Repeat("9", 1000) + "}",
		"a long name":        `{"` + strings.Repeat("e", 100<<10) + `":1}`,
		"only escapes":       `{"errcode":"` + strings.Repeat(`\\`, 50<<10) + `"}`,
		"closing brackets":   "{" + strings.Repeat("]", 64<<10),
		"commas":             "{" + strings.Repeat(",", 64<<10),
		"spaces":             strings.Repeat(" ", 100<<10) + "{}",
		"an endless literal": `{"errcode":` + strings.Repeat("true", 30<<10),
	} {
		t.Run(name, func(t *testing.T) {
			codes := dingtalk
			codes.Fields = []string{"*.*.code", "sub_code", "errcode"}
			resp := jsonAnswer(200, body)
			requireCloses(t, 0, codes.Answer(resp))
			requireBody(t, body, resp)
		})
	}
}

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

// FuzzDialects: whatever stands in a field, no penalty is negative or longer
// than the cap, and nothing but a zero is zero, or a duration of less than can be
// told.
func FuzzDialects(f *testing.F) {
	for _, field := range []string{
		"", "0", "0.0", "0s", "120", "2.0", "6m0s", "12ms", "1767323075", "1767323075.5", "1767323075000", "9999999999999999999999",
		date, "Friday, 02-Jan-26 03:04:35 GMT", "Fri Jan  2 03:04:35 2026", "2026-01-02T03:04:35Z", "2026-01-02T11:04:35+0800",
		"20:1,100:120", "32/40", "-1", "1e9", "NaN", "+Inf", "0x1p-2", "1_0", "soon", "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z",
	} {
		f.Add(field, date)
		f.Add(field, "")
	}
	const none = 7*time.Minute + time.Nanosecond
	f.Fuzz(func(t *testing.T, field, date string) {
		resp := answer(429, "", "Date", date, "Retry-After", field)
		d := lengthOf(feedback.RetryAfter(none)(resp))
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.LessOrEqual(t, d, throttle.MaxPenalty)

		// A field may be a list, whose members have parameters and quotes.
		for member := range strings.SplitSeq(field, ",") {
			member, _, _ = strings.Cut(member, ";")
			member = strings.TrimSpace(strings.Trim(member, "\" \t"))
			if _, err := time.ParseDuration(member); d == 0 && err != nil {
				require.Empty(t, strings.Trim(member, "0."), "only a zero means now")
			}
		}

		for _, h := range []feedback.Headers{
			{Remaining: "Retry-After", Reset: "Retry-After"},
			{Used: "Retry-After", Size: 100, Per: time.Minute, Clock: true},
			{Remaining: "Retry-After", Per: time.Second},
		} {
			q, ok := h.Left(resp).Left()
			if !ok {
				require.Zero(t, q)
				continue
			}
			require.GreaterOrEqual(t, q.Left, 0)
			require.Positive(t, q.Reset)
			require.LessOrEqual(t, q.Reset, throttle.MaxPenalty)
		}
	})
}
