package dingtalktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// A route is one API: the demands on its calls, and the function that answers them.
type route struct {
	method     string // "" if the API takes any
	pattern    string // of http.ServeMux, without a method
	permission string // 权限点; "" if an application needs none
	answer     func(*call) http.HandlerFunc
}

// builtIn are the APIs of each Server. Methods and permissions are as on the APIs' pages. Every API
// except /robot/send needs qyapi_base at least, which every application has.
var builtIn = []route{
	{http.MethodGet, pathGetToken, "", (*call).getToken},
	{http.MethodPost, pathAccessToken, "", (*call).accessToken},
	{http.MethodPost, "/topapi/v2/department/listsub", "qyapi_get_department_list", (*call).listSub},
	{http.MethodPost, "/topapi/v2/department/listsubid", "qyapi_get_department_list", (*call).listSubID},
	{http.MethodPost, "/topapi/v2/user/list", "qyapi_get_department_member", (*call).listUsers},
	{http.MethodGet, "/v1.0/contact/users/{unionId}", "Contact.User.Read", (*call).contact},
	{http.MethodPost, pathRobot, "", (*call).robotSend},
	{http.MethodPost, "/v1.0/robot/oToMessages/batchSend", "qyapi_robot_sendmsg", (*call).batchSend},
	{http.MethodPost, "/topapi/message/corpconversation/asyncsend_v2", "", (*call).sendNotice},
	{http.MethodPost, "/topapi/message/corpconversation/getsendresult", "", (*call).sendResult},
}

// The APIs that need no token of an application.
const (
	pathGetToken    = "/gettoken"
	pathAccessToken = "/v1.0/oauth2/accessToken"
	pathRobot       = "/robot/send"
)

// free matches the APIs that do not count for the month: the list of the page
// basic-interfaces-such-as-log-off-and-address-book, of 2026-07-22. Not on it are
// /gettoken, /v1.0/oauth2/{corpId}/token and /v1.0/oauth2/corpAccessToken.
var free = func() *http.ServeMux {
	m := http.NewServeMux()
	for root, rests := range map[string]string{
		"/v1.0/oauth2/":          "accessToken userAccessToken jsapiTickets ssoAccessToken authRules/user ssoUserInfo",
		"/sns/":                  "gettoken",
		"/topapi/v2/user/":       "getuserinfo create update get delete list getbymobile",
		"/topapi/user/":          "listsimple listid count getbyunionid listadmin get_admin_scope",
		"/topapi/inactive/":      "user/v2/get",
		"/v1.0/contact/":         "empLeaveRecords seniorSettings staffAttributes/visibilitySettings/ users/{unionId} invites/infos dingIndexs organizations/authInfos contactHideSettings/ depts/settings/priorities",
		"/topapi/v2/department/": "create update delete get listsub listsubid listparentbydept listparentbyuser",
		"/role/":                 "add_role add_role_group update_role",
		"/topapi/role/":          "addrolesforemps deleterole removerolesforemps scope/update getrolegroup list getrole simplelist",
		"/topapi/extcontact/":    "create delete update list listlabelgroups get",
		"/topapi/smartwork/hrm/": "employee/addpreentry employee/querypreentry employee/queryonjob employee/v2/update roster/meta/get",
		"/v1.0/hrm/":             "rosters/lists/query employees/dimissionInfos employees/dismissions processes/transfer",
		"/v1.0/im/":              "interconnections/ conversations/urls",
		"/topapi/":               "alitrip/ smartbot/msg/push",
		"/v1.0/":                 "alitrip/ dingmi/ manufacturing/users/ jzcrm/ h3yun/",
		"/v1.0/customerService/": "tickets/",
		"/v2.0/":                 "esign/",
	} {
		for _, rest := range strings.Fields(rests) {
			m.HandleFunc(root+rest, http.NotFound)
		}
	}
	return m
}()

// metered reports whether a call counts for the month: it does unless the API is free.
func metered(r *http.Request) bool {
	_, pattern := free.Handler(r)
	return pattern == ""
}

// parameters are the parameters of a call, in the query of the old API, and in the body.
type parameters struct {
	query   url.Values
	body    map[string]any // nil if the body holds none
	foreign bool           // the body is of a type that the old API does not take
}

// readParameters reads the parameters of a call, whose body is JSON or, for the old API, a form. It does not
// read a body of another type, and marks it as foreign.
func readParameters(r *http.Request, body []byte) parameters {
	p := parameters{query: r.URL.Query()}
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case len(body) == 0:
	case isNew(r.URL.Path) || media == "application/json":
		d := json.NewDecoder(bytes.NewReader(body))

		// Keep numbers as they were written.
		d.UseNumber()
		_ = d.Decode(&p.body) // a body that is no object has no parameters

	case media == "application/x-www-form-urlencoded":
		form, _ := url.ParseQuery(string(body)) // what could be read is used
		p.body = make(map[string]any, len(form))
		for name := range form {
			p.body[name] = form.Get(name)
		}

	default:
		p.foreign = true
	}

	return p
}

// text returns a parameter of the body, or of the query, as a text. A form has
// numbers as texts, so both are read in the same way.
func (p parameters) text(name string) string {
	if value, ok := p.body[name]; ok && value != nil {
		return fmt.Sprint(value)
	}
	return p.query.Get(name)
}

// number returns a parameter as a whole number, or missing if it is no number.
func (p parameters) number(name string, missing int) int {
	var n int
	if _, err := fmt.Sscan(p.text(name), &n); err != nil {
		return missing
	}
	return n
}

// list returns a parameter that is a list of texts: an array in JSON, or the parts
// between commas.
func (p parameters) list(name string) (all []string) {
	if array, ok := p.body[name].([]any); ok {
		for _, value := range array {
			all = append(all, fmt.Sprint(value))
		}
		return all
	}
	return strings.FieldsFunc(p.text(name), func(c rune) bool { return c == ',' })
}
