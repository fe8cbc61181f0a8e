package fake

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An answer is what goes back: a status and a body, JSON unless html is set.
type answer struct {
	status int
	body   any
	html   string
	media  string // what JSON calls itself; "": JSON
}

func (a answer) write(w http.ResponseWriter, date time.Time) {
	w.Header().Set("Date", date.UTC().Format(http.TimeFormat))
	if a.html != "" {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.html)) // the caller is gone: nobody to tell
		return
	}
	w.Header().Set("Content-Type", cmp.Or(a.media, "application/json;charset=UTF-8"))
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(a.body) // the same
}

// oldError is an error of oapi.dingtalk.com. It is sent with status 200.
type oldError struct {
	ErrCode   int    `json:"errcode"`
	SubCode   string `json:"sub_code,omitempty"`
	SubMsg    string `json:"sub_msg,omitempty"`
	ErrMsg    string `json:"errmsg,omitempty"`
	RequestID string `json:"request_id,omitempty"`
}

// plain is an old error whose code stands in errcode itself.
func plain(code int, text string) answer {
	return answer{status: http.StatusOK, body: oldError{ErrCode: code, ErrMsg: text}}
}

// wrapped is an old error behind errcode 88.
func wrapped(code, text string) answer {
	return answer{status: http.StatusOK, body: oldError{
		ErrCode: 88, SubCode: code, SubMsg: text,
		ErrMsg:    fmt.Sprintf("ding talk error[subcode=%s,submsg=%s]", code, text),
		RequestID: strconv.FormatUint(rand.Uint64(), 36),
	}}
}

// newError is an error of api.dingtalk.com.
type newError struct {
	Code      string `json:"code"`
	RequestID string `json:"requestid"`
	Message   string `json:"message"`
}

func gateway(status int, code, text string) answer {
	id := fmt.Sprintf("%08X-%04X-%04X-%04X-%012X", rand.Uint32(), rand.Uint32N(1<<16),
		rand.Uint32N(1<<16), rand.Uint32N(1<<16), rand.Uint64N(1<<48))
	return answer{status: status, body: newError{Code: code, RequestID: id, Message: text}}
}

// forbidden is how the new API refuses what is too fast. The text of the
// message is not known; nobody should read it.
func forbidden(limit string) answer {
	return gateway(http.StatusForbidden, "Forbidden.AccessDenied."+limit, "The request is limited.")
}

// ban is the answer of every path to a banned address. It has no errcode, so a
// client that looks only there takes it for success.
func (o Options) ban() answer {
	if o.BanHTML {
		return answer{status: o.BanStatus, html: "<!DOCTYPE html><html><body>deny</body></html>"}
	}
	type deny struct {
		Status int    `json:"status"`
		Wait   *int   `json:"wait,omitempty"`
		Source string `json:"source"`
		Punish string `json:"punish"`
		UUID   string `json:"uuid"`
	}
	wait := new(int)
	*wait = int(o.BanFor / time.Minute)
	if o.BanNoWait {
		wait = nil
	}
	uuid := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	return answer{status: o.BanStatus, media: o.BanMedia, body: deny{1111, wait, "x5", "deny", uuid}}
}

// robotTexts are what a closed robot says, by its code. The text of 410100 is not
// known.
var robotTexts = map[int]string{
	130101: "send too fast, exceed 20 times per minute",
	660026: "sending too many messages per minute",
}

// beijing is the zone of every time that DingTalk prints.
var beijing = time.FixedZone("UTC+8", 8*60*60)

// crowded is the answer to a call of an API that all apps together use too
// much in the clock second that now lies in.
func crowded(api string, limit int, now time.Time) answer {
	if isNew(api) {
		return forbidden("QpsLimitForApi")
	}
	second := now.In(beijing).Format(time.DateTime)
	end := now.In(beijing).Add(time.Second).Format(time.DateTime)
	return wrapped("90002", fmt.Sprintf("当前所有钉钉应用调用该接口次数过多，超出了该接口承受的最大qps，"+
		"请求被暂时限制了，建议错开整点时刻调用该接口, apiPath(%s), 从 %s 到 %s 请求总次数超过 %d 次, "+
		"限制将在 %s 结束.", apiName(api), second, second, limit, end))
}

// tooFast is the answer to an app that calls one API too often. No real body
// of 90018 has been published; the text is ours.
func (o Options) tooFast(api string) answer {
	const text = "应用调用该接口的qps超过限制"
	switch {
	case isNew(api):
		return forbidden("QpsLimitForAppkeyAndApi")
	case o.Unwrapped:
		return plain(90018, text)
	}
	return wrapped("90018", text)
}

// usedUp is the answer to a metered call in a month whose quota is spent.
func usedUp(api string, used, quota int) answer {
	if isNew(api) {
		return forbidden("ApiCountLimitForOrg")
	}
	return plain(90020, fmt.Sprintf("您的企业本月api调用量已超过限制,调用量:%d次,额度:%d次,"+
		"请登录开发者后台-资源管理-查看用量明细", used, quota))
}

// isNew reports whether an API belongs to the family of api.dingtalk.com.
func isNew(api string) bool { return strings.HasPrefix(api, "/v1.0/") }

// apiName is DingTalk's own name for an API of the old family: dotted for
// /topapi/, the path itself for the others.
func apiName(api string) string {
	rest, ok := strings.CutPrefix(api, "/topapi/")
	if !ok {
		return api
	}
	return "dingtalk.oapi." + strings.ReplaceAll(rest, "/", ".")
}
