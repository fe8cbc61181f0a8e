package dingtalk_test

import (
	"testing"

	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

// envelopes are the ways in which the old API sends a code.
func envelopes(name, request, code, closes string) []presettest.Case {
	var cases []presettest.Case
	for form, body := range map[string]string{
		"plain":             `{"errcode":` + code + `,"errmsg":"…"}`,
		"plain, text":       `{"errmsg":"…","errcode":"` + code + `"}`,
		"wrapped":           `{"errcode":88,"sub_code":"` + code + `","sub_msg":"…","errmsg":"ding talk error[subcode=` + code + `,submsg=…]","request_id":"…"}`,
		"wrapped, numbers":  `{"errcode":"88","sub_code":` + code + `}`,
		"wrapped in errmsg": `{"errcode":88,"errmsg":"ding talk error[subcode=` + code + `,submsg=…]"}`,
	} {
		cases = append(cases, presettest.Case{
			Name: name + code + " " + form, Request: request, Header: asJSON, Answers: body, Closes: closes,
		})
	}
	return cases
}

// TestEveryCodeClosesItsBudget goes through the list of codes, for a company's own
// application and for a vendor's.
func TestEveryCodeClosesItsBudget(t *testing.T) {
	own, vendors := dingtalk.Policies(dingtalk.Options{}), dingtalk.Policies(dingtalk.Options{ISV: "vendor"})
	for _, c := range []struct {
		code, lasts, own, vendors string
	}{
		{"90001", "1s", "dingtalk-ip", "dingtalk-ip"},
		{"90002", "1s", "dingtalk-global", "dingtalk-global"},
		{"90003", "1s", "dingtalk-company", "dingtalk-company"},
		{"90004", "1s", "dingtalk-app", "dingtalk-app"},
		{"90005", "1m", "dingtalk-company-api", "dingtalk-company-api"},
		{"90006", "1m", "dingtalk-api", "dingtalk-api"},
		{"90007", "1m", "dingtalk-company", "dingtalk-isv-company"},
		{"90008", "1m", "dingtalk-company-api", "dingtalk-isv-company-api"},
		{"90009", "1m", "dingtalk-app", "dingtalk-isv"},
		{"90010", "1m", "dingtalk-api", "dingtalk-isv-api"},
		{"90011", "1m", "dingtalk-app", "dingtalk-app"},
		{"90012", "1m", "dingtalk-api", "dingtalk-api"},
		{"90013", "1m", "dingtalk-app", "dingtalk-suite-company"},
		{"90014", "1m", "dingtalk-api", "dingtalk-suite-company-api"},
		{"90017", "1m", "dingtalk-ip", "dingtalk-ip"},
		{"90018", "1s", "dingtalk-api", "dingtalk-api"},
		{"90019", "1s", "dingtalk-api", "dingtalk-suite-company-api"},
		{"90020", "24h", "dingtalk-month", "dingtalk-month"},
	} {
		presettest.Run(t, own, presettest.Case{}, envelopes("", column, c.code, c.own+" "+c.lasts))
		presettest.Run(t, vendors, presettest.Case{}, envelopes("vendor's ", column, c.code, c.vendors+" "+c.lasts))
	}
	for _, code := range []string{"130101", "410100"} {
		presettest.Run(t, own, presettest.Case{}, envelopes("", send, code, "dingtalk-robot 10m"))
		presettest.Run(t, own, presettest.Case{}, envelopes("", reply, code, "dingtalk-session 10m"))
	}
	presettest.Run(t, own, presettest.Case{}, envelopes("", send, "90030", "dingtalk-webhooks 24h"))
	for code, closes := range map[string]string{
		"45009": "dingtalk-api 1m",
		// Service numbers and tasks: the day of one person, and what is about an API.
		"800055": "dingtalk-company-api 1s", "820011": "dingtalk-company-api 1s",
		"800017": "dingtalk-company-api 16h", "854002": "dingtalk-company-api 16h",
		// A robot's or a month's code where no robot is called: the path alone.
		"130101": "dingtalk-company-api 10m", "90030": "dingtalk-company-api 24h",
	} {
		presettest.Run(t, own, presettest.Case{}, envelopes("", column, code, closes))
	}
	presettest.Run(t, own, presettest.Case{Body: `{"userid":"u"}`}, envelopes("", task, "854002", "dingtalk-tasks 16h"))
	presettest.Run(t, own, presettest.Case{Body: `{"userid_list":["u"]}`}, envelopes("", push, "800017", "dingtalk-pushes 16h"))
	presettest.Run(t, own, presettest.Case{Body: `{"userid_list":"u"}`}, envelopes("", push, "800055", "dingtalk-company-api 1s"))
	for code, closes := range map[string]string{
		"41045": "dingtalk-notices-all 16h", "41046": "dingtalk-notices-all 16h",
		"41047": "dingtalk-notices-company 1m", "41048": "dingtalk-notices-company 1m",
		"143103": "dingtalk-notices 1m", "143104": "dingtalk-notices-company 1m", "143203": "dingtalk-notices 1m",
	} {
		presettest.Run(t, own, presettest.Case{Body: `{"to_all_user":true}`}, envelopes("", notice, code, closes))
	}
	presettest.Run(t, vendors, presettest.Case{Body: `{"userid_list":"u"}`}, envelopes("vendor's ", notice, "143204", "dingtalk-notices-suite 1m"))
	for _, code := range []string{"0", "-1", "22", "404", "40014", "40096", "300005", "90021", "854001", "143105", "660026"} {
		presettest.Run(t, own, presettest.Case{}, envelopes("not ", column, code, ""))
	}
}

// TestVendorsNewCodes: the codes of suites close rows of their own.
func TestVendorsNewCodes(t *testing.T) {
	for code, lasts := range map[string]string{"QpsLimitForSuitekeyAndOrgAndApi": "1s", "QpmLimitForSuitekeyAndOrgAndApi": "1m"} {
		presettest.Run(t, dingtalk.Policies(dingtalk.Options{ISV: "vendor"}), presettest.Case{}, []presettest.Case{
			{Name: code, Request: streamed, Status: 403, Answers: `{"code":"Forbidden.AccessDenied.` + code + `"}`,
				Closes: "dingtalk-suite-company-api " + lasts},
		})
	}
}

// TestWhatIsNoRefusal has bodies that are near one.
func TestWhatIsNoRefusal(t *testing.T) {
	var cases []presettest.Case
	for name, body := range map[string]string{
		"success":                   `{"errcode":0,"errmsg":"ok","result":{"code":"90018"}}`,
		"success of a robot's page": `{"errcode":"0","errmsg":"ok"}`,
		"success of the new API":    `{"nick":"Employee 0001","unionId":"union000001"}`,
		"success with a code":       `{"code":"90018","name":"Sales"}`,
		"success with a number":     `{"result":{},"code":90020}`,
		"success with a word":       `{"code":"QpsLimitForApi","name":"a rule of ours"}`,
		"success with a sub_code":   `{"errcode":0,"sub_code":"90018","errmsg":"subcode=90018"}`,
		"business, quoting":         `{"errcode":40035,"errmsg":"unknown text [subcode=90018]"}`,
		"business, ending":          `{"errcode":40035,"errmsg":"限制将在 2000-01-01 09:00:00 结束"}`,
		"unknown path":              `{"errcode":22,"sub_msg":"不合法ApiName，ApiName = dingtalk.oapi.nothing"}`,
		"unknown path, new host":    `{"errcode":404,"errmsg":"请求的URI地址不存在"}`,
		"wrong token":               `{"errcode":88,"sub_code":"40014","sub_msg":"不合法的access_token","errmsg":"ding talk error[subcode=40014,submsg=不合法的access_token]","request_id":"16l4ew3d47pdp"}`,
		"wrong secret":              `{"errcode":40096,"errmsg":"不合法的appKey或appSecret"}`,
		"cut short":                 `{"errcode":900`,
		"code of another depth":     `{"result":{"errcode":90018,"punish":"deny"}}`,
		"status of its own":         `{"status":1111,"source":"calendar"}`,
		"source of its own":         `{"status":1,"source":"x5"}`,
		"no punishment":             `{"punish":"none","status":0,"wait":5}`,
		"no JSON":                   `90018 {"punish":"deny"}`,
		"empty":                     ``,
	} {
		cases = append(cases, presettest.Case{Name: name, Request: column, Header: asJSON, Answers: body})
	}
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), presettest.Case{}, cases)
}

// TestAnErrorsOwnNumber: the new API has words, and a number in its "code" is not
// one of the old one's.
func TestAnErrorsOwnNumber(t *testing.T) {
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), presettest.Case{Request: streamed}, []presettest.Case{
		{Name: "text", Status: 400, Header: asJSON, Answers: `{"code":"90018","message":"…"}`},
		{Name: "number", Status: 403, Header: asJSON, Answers: `{"code":90018,"message":"…"}`},
	})
}
