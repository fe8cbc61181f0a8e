package fake

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// An endpoint is one API: its kind of caller, whether it counts for the month, and
// what it answers.
type endpoint struct {
	login   bool // called with the app's secret, to get a token
	robot   bool // called with a robot's token
	metered bool
	serve   func(*Server, *http.Request) answer // nil: no such path
	unknown answer                              // what a path that does not exist answers
}

// users is the path of the one API here that has a parameter in it.
const users = "/v1.0/contact/users/"

var endpoints = map[string]endpoint{
	"/gettoken":                       {login: true, serve: (*Server).getToken},
	"/topapi/v2/department/listsub":   {serve: (*Server).listSub},
	"/topapi/v2/user/list":            {serve: (*Server).listUsers},
	"/topapi/v2/user/get":             {serve: (*Server).getUser},
	"/topapi/attendance/getcolumnval": {metered: true, serve: (*Server).attendance},
	"/robot/send":                     {robot: true, serve: (*Server).send},
	"/v1.0/oauth2/accessToken":        {login: true, serve: (*Server).accessToken},
	"/v1.0/workflow/processInstances": {metered: true, serve: (*Server).workflow},
	users + "{unionId}":               {serve: (*Server).contact},
}

// route finds the endpoint and the name under which its calls are counted.
func route(r *http.Request) (endpoint, string) {
	path := r.URL.Path
	if rest, ok := strings.CutPrefix(path, users); ok && rest != "" && !strings.Contains(rest, "/") {
		r.SetPathValue("unionId", rest)
		path = users + "{unionId}"
	}
	e, ok := endpoints[path]
	switch {
	case ok:
	case isNew(path):
		e.unknown = gateway(http.StatusNotFound, "InvalidAction.NotFound", "Specified api is not found.")
	case strings.HasPrefix(r.Host, "api."):
		e.unknown = plain(404, "请求的URI地址不存在")
	default:
		e.unknown = answer{status: http.StatusOK, body: oldError{
			ErrCode: 22, SubMsg: "不合法ApiName，ApiName = " + apiName(path),
		}}
	}
	return e, path
}

// credential returns what a request authenticates itself with.
func (e endpoint) credential(r *http.Request) string {
	switch {
	case e.login && isNew(r.URL.Path):
		return "" // in the body, which only the endpoint reads
	case e.login:
		return r.URL.Query().Get("appkey")
	case isNew(r.URL.Path):
		return r.Header.Get("x-acs-dingtalk-access-token")
	}
	return r.FormValue("access_token") // the query, or a form
}

func (s *Server) getToken(r *http.Request) answer {
	query := r.URL.Query()
	token, ok := s.login(query.Get("appkey"), query.Get("appsecret"))
	if !ok {
		return plain(40096, "不合法的appKey或appSecret")
	}
	return ok200(map[string]any{
		"errcode": 0, "access_token": token, "errmsg": "ok", "expires_in": int(tokenLife.Seconds()),
	})
}

func (s *Server) accessToken(r *http.Request) answer {
	var in struct{ AppKey, AppSecret string }
	_ = json.NewDecoder(r.Body).Decode(&in) // no credentials are wrong credentials
	token, ok := s.login(in.AppKey, in.AppSecret)
	if !ok {
		return gateway(http.StatusBadRequest, "InvalidAuthentication", "不合法的appKey或appSecret")
	}
	return ok200(map[string]any{"accessToken": token, "expireIn": int(tokenLife.Seconds())})
}

const tokenLife = 7200 * time.Second

// login returns the token of an app. Asking again gives the same token and
// prolongs its life.
func (s *Server) login(app, secret string) (string, bool) {
	want, known := s.options.Apps[app]
	if !known || want != secret {
		return "", false
	}
	sum := sha256.Sum256([]byte(app + "\x00" + secret))
	name := hex.EncodeToString(sum[:16])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[name] = token{app: app, end: time.Now().Add(tokenLife)}
	return name, true
}

func (s *Server) send(*http.Request) answer {
	return ok200(map[string]any{"errcode": 0, "errmsg": "ok"})
}

func (s *Server) attendance(*http.Request) answer {
	return result(map[string]any{"column_vals": []any{}})
}

func (s *Server) workflow(*http.Request) answer {
	return ok200(map[string]any{"result": map[string]any{}, "success": true})
}

// ok200 is a success of either family.
func ok200(body any) answer { return answer{status: http.StatusOK, body: body} }

// result is a success of the old family that has something to tell.
func result(value any) answer {
	return ok200(map[string]any{"errcode": 0, "errmsg": "ok", "result": value})
}
