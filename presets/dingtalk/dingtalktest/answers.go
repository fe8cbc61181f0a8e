package dingtalktest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The ids that all answers of a family name.
const (
	requestID    = "16l4ew3d47pdp"
	newRequestID = "01A08FE7-CD6B-79BB-8B2E-35D8768AD457"
)

// object is a JSON object.
type object map[string]any

// reply answers with a status and JSON.
func reply(status int, body object) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json;charset=UTF-8")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // an error says that the caller is gone
	}
}

// plain answers with an error of oapi.dingtalk.com whose code is errcode itself.
func plain(code int, text string) http.HandlerFunc {
	return reply(http.StatusOK, object{"errcode": code, "errmsg": text})
}

// wrapped answers with an error of oapi.dingtalk.com whose errcode is 88, and whose code is sub_code.
func wrapped(code, text string) http.HandlerFunc {
	return reply(http.StatusOK, object{
		"errcode": 88, "sub_code": code, "sub_msg": text, "request_id": requestID,
		"errmsg": fmt.Sprintf("ding talk error[subcode=%s,submsg=%s]", code, text),
	})
}

// gateway answers with an error of api.dingtalk.com.
func gateway(status int, code, text string) http.HandlerFunc {
	return reply(status, object{"code": code, "requestid": newRequestID, "message": text})
}

// forbidden answers as api.dingtalk.com refuses a call above a limit.
func forbidden(limit, text string) http.HandlerFunc {
	return gateway(http.StatusForbidden, "Forbidden.AccessDenied."+limit, text)
}

// The documented texts of codes of api.dingtalk.com.
const (
	appDisabled = "您的企业应用调用钉钉开放平台当前接口的所有请求都被暂时禁用了"
	apiDisabled = "您的服务器调用钉钉开放平台当前接口的所有请求都被暂时禁用了"
)

// denied is the answer to a banned address. It has no errcode, so a program that
// looks only there takes it for success.
func denied(ban time.Duration) http.HandlerFunc {
	return reply(http.StatusOK, object{
		"status": 1111, "wait": int(ban / time.Minute), "source": "x5", "punish": "deny", "uuid": "24ce4f5a0b6c4d8e",
	})
}

// BanPage is an [Options.BanAnswer]: a page, which the documentation speaks of. Its status
// and its text are not documented.
func BanPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, "<!DOCTYPE html>\n<html><body>punish: deny</body></html>\n")
}

// beijing is the zone of every time that DingTalk prints.
var beijing = time.FixedZone("UTC+8", 8*60*60)

// crowded is the answer to a call of an API that all applications together use
// too much in the second of the clock that now lies in.
func crowded(path string, limit int, now time.Time) http.HandlerFunc {
	if isNew(path) {
		return forbidden("QpsLimitForApi", apiDisabled)
	}
	second := now.In(beijing).Format(time.DateTime)
	end := now.In(beijing).Add(time.Second).Format(time.DateTime)
	return wrapped("90002", fmt.Sprintf("当前所有钉钉应用调用该接口次数过多，超出了该接口承受的最大qps，"+
		"请求被暂时限制了，建议错开整点时刻调用该接口, apiPath(%s), 从 %s 到 %s 请求总次数超过 %d 次, "+
		"限制将在 %s 结束.", apiName(path), second, second, limit, end))
}

// tooFast is the answer to an application that calls one API too often. No real
// body of 90018 has been published; the text is ours.
func tooFast(path string) http.HandlerFunc {
	if isNew(path) {
		return forbidden("QpsLimitForAppkeyAndApi", appDisabled)
	}
	return wrapped("90018", "应用调用该接口的qps超过限制")
}

// usedUp is the answer to a metered call in a month whose quota is spent.
func usedUp(path string, used, quota int) http.HandlerFunc {
	text := fmt.Sprintf("您的企业本月api调用量已超过限制,调用量:%d次,额度:%d次,"+
		"请登录开发者后台-资源管理-查看用量明细", used, quota)
	if isNew(path) {
		return forbidden("ApiCountLimitForOrg", text)
	}
	return plain(90020, text)
}

// unknown is the answer to a path that is no API.
func unknown(path string) http.HandlerFunc {
	if isNew(path) {
		return gateway(http.StatusNotFound, "InvalidAction.NotFound", "Specified api is not found.")
	}
	text := "不合法ApiName，ApiName = " + apiName(path)
	return reply(http.StatusOK, object{
		"errcode": 22, "sub_msg": text, "errmsg": "Invalid method[submsg=" + text + "]", "request_id": requestID,
	})
}

// wrongMethod returns the code and the answer for a call with a wrong method.
func wrongMethod(path, wants string) (code string, h http.HandlerFunc) {
	switch {
	case isNew(path):
		return "405", reply(http.StatusMethodNotAllowed, object{"requestid": newRequestID, "message": "Method Not Allowed"})
	case wants == http.MethodGet:
		return "43001", plain(43001, "需要GET请求")
	}
	return "43002", plain(43002, "需要POST请求")
}

// foreign is the answer to a call with a body that is neither a form nor JSON.
var foreign = plain(43004, "无效的HTTP HEADER Content-Type")

// noToken is the answer to a call that shows no token.
func noToken(path string) http.HandlerFunc {
	if isNew(path) {
		return gateway(http.StatusBadRequest, "AuthenticationFailed.MissingParameter", "缺少参数：x-acs-dingtalk-access-token")
	}
	return wrapped("40000", "access_token is blank")
}

// invalidToken is the answer to a call whose token is unknown or has expired.
func invalidToken(path string) http.HandlerFunc {
	const text = "不合法的access_token"
	if isNew(path) {
		return gateway(http.StatusBadRequest, "InvalidAuthentication", text)
	}
	return wrapped("40014", text)
}

// notPermitted is the answer to an application that was not given the permission.
func notPermitted(path, app, permission string) http.HandlerFunc {
	text := fmt.Sprintf("应用尚未开通所需的权限：[%s]，点击链接申请并开通即可：https://open-dev.dingtalk.com/appscope/apply?content=%s%%23%[1]s",
		permission, url.QueryEscape(app))
	if isNew(path) {
		return reply(http.StatusForbidden, object{
			"code": "Forbidden.AccessDenied.AccessTokenPermissionDenied", "requestid": newRequestID, "message": text,
			"accessdenieddetail": object{"requiredScopes": []string{permission}},
		})
	}
	return wrapped("60011", fmt.Sprintf("%s, {requiredScopes=[%s]}", text, permission))
}

// isNew reports whether an API belongs to the family of api.dingtalk.com.
func isNew(path string) bool {
	return strings.HasPrefix(path, "/v1.0/") || strings.HasPrefix(path, "/v2.0/")
}

// apiName is DingTalk's own name for an API of oapi.dingtalk.com: dotted below /topapi/, and the
// path itself elsewhere.
func apiName(path string) string {
	rest, ok := strings.CutPrefix(path, "/topapi/")
	if !ok {
		return path
	}
	return "dingtalk.oapi." + strings.ReplaceAll(rest, "/", ".")
}
