package dingtalk_test

import (
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

// envelopes are the ways in which the old API sends a code.
func envelopes(name, request, code string, closes closed) []presettest.Case {
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
		code         string
		lasts        time.Duration
		own, vendors string
	}{
		{"90001", time.Second, "dingtalk-ip", "dingtalk-ip"},
		{"90002", time.Second, "dingtalk-global", "dingtalk-global"},
		{"90003", time.Second, "dingtalk-company", "dingtalk-company"},
		{"90004", time.Second, "dingtalk-app", "dingtalk-app"},
		{"90005", time.Minute, "dingtalk-company-api", "dingtalk-company-api"},
		{"90006", time.Minute, "dingtalk-api", "dingtalk-api"},
		{"90007", time.Minute, "dingtalk-company", "dingtalk-isv-company"},
		{"90008", time.Minute, "dingtalk-company-api", "dingtalk-isv-company-api"},
		{"90009", time.Minute, "dingtalk-app", "dingtalk-isv"},
		{"90010", time.Minute, "dingtalk-api", "dingtalk-isv-api"},
		{"90011", time.Minute, "dingtalk-app", "dingtalk-app"},
		{"90012", time.Minute, "dingtalk-api", "dingtalk-api"},
		{"90013", time.Minute, "dingtalk-app", "dingtalk-suite-company"},
		{"90014", time.Minute, "dingtalk-api", "dingtalk-suite-company-api"},
		{"90017", time.Minute, "dingtalk-ip", "dingtalk-ip"},
		{"90018", time.Second, "dingtalk-api", "dingtalk-api"},
		{"90019", time.Second, "dingtalk-api", "dingtalk-suite-company-api"},
		{"90020", throttle.MaxPenalty, "dingtalk-month", "dingtalk-month"},
	} {
		presettest.Run(t, own, envelopes("", column, c.code, closed{c.own: c.lasts}))
		presettest.Run(t, vendors, envelopes("vendor's ", column, c.code, closed{c.vendors: c.lasts}))
	}
	for _, code := range []string{"130101", "410100", "660026"} {
		presettest.Run(t, own, envelopes("", send, code, closed{"dingtalk-robot": 10 * time.Minute}))
	}
	presettest.Run(t, own, envelopes("", send, "90030", closed{"dingtalk-webhooks": throttle.MaxPenalty}))
	for _, code := range []string{"0", "-1", "22", "404", "40014", "40096", "300005", "90021"} {
		presettest.Run(t, own, envelopes("not ", column, code, nil))
	}
}

// TestVendorsNewCodes: the codes of suites close rows of their own.
func TestVendorsNewCodes(t *testing.T) {
	for code, lasts := range map[string]time.Duration{
		"QpsLimitForSuitekeyAndOrgAndApi": time.Second,
		"QpmLimitForSuitekeyAndOrgAndApi": time.Minute,
	} {
		presettest.Run(t, dingtalk.Policies(dingtalk.Options{ISV: "vendor"}), []presettest.Case{{
			Name: code, Request: streamed, Status: 403, Answers: `{"code":"Forbidden.AccessDenied.` + code + `"}`,
			Closes: closed{"dingtalk-suite-company-api": lasts},
		}})
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
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), cases)
}

// TestAnErrorsOwnNumber: the new API has words, and a number in its "code" is not
// one of the old one's.
func TestAnErrorsOwnNumber(t *testing.T) {
	presettest.Run(t, dingtalk.Policies(dingtalk.Options{}), []presettest.Case{
		{Name: "text", Request: streamed, Status: 400, Header: asJSON, Answers: `{"code":"90018","message":"…"}`},
		{Name: "number", Request: streamed, Status: 403, Header: asJSON, Answers: `{"code":90018,"message":"…"}`},
	})
}
