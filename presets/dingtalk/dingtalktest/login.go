package dingtalktest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// A token is this and the application's key.
const tokenPrefix = "token-of-"

// getToken gives an application its token.
func getToken(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("appkey") == "" || query.Get("appsecret") == "" {
		plain(40096, "不合法的appKey或appSecret")(w, r)
		return
	}
	reply(http.StatusOK, object{
		"errcode": 0, "errmsg": "ok", "access_token": tokenPrefix + query.Get("appkey"), "expires_in": 7200,
	})(w, r)
}

// accessToken is getToken as api.dingtalk.com has it.
func accessToken(w http.ResponseWriter, r *http.Request) {
	var in struct{ AppKey, AppSecret string }
	_ = json.NewDecoder(r.Body).Decode(&in) // no credentials are wrong credentials
	if in.AppKey == "" || in.AppSecret == "" {
		gateway(http.StatusBadRequest, "InvalidAuthentication", "不合法的appKey或appSecret")(w, r)
		return
	}
	reply(http.StatusOK, object{"accessToken": tokenPrefix + in.AppKey, "expireIn": 7200})(w, r)
}

// appOf returns the application of a call, and whether the call may be made at
// all.
func appOf(r *http.Request) (app string, known bool) {
	switch r.URL.Path {
	case "/gettoken":
		return r.URL.Query().Get("appkey"), true
	case "/v1.0/oauth2/accessToken":
		return "", true // the key is in the body, which only the API reads
	}
	token := r.URL.Query().Get("access_token")
	if isNew(r.URL.Path) {
		token = r.Header.Get("x-acs-dingtalk-access-token")
	}
	if app, known = strings.CutPrefix(token, tokenPrefix); known {
		return app, true
	}
	return "", false
}
