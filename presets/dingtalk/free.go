package dingtalk

import (
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/match"
)

// A freeFamily is a part of DingTalk's list of APIs that no company pays for: a method, "" for any, and
// paths that begin alike. "*" is any one segment, and "**" all that follows.
type freeFamily struct{ method, begin, ends string }

// freeFamilies is the list: page basic-interfaces-such-as-log-off-and-address-book, 2026-07-22, with the
// methods and the paths of the pages that it links to.
var freeFamilies = []freeFamily{
	// Credentials and logins. Not on the list: /gettoken, /v1.0/oauth2/{corpId}/token, corpAccessToken.
	{"POST", "/v1.0/oauth2/", "accessToken userAccessToken jsapiTickets ssoAccessToken"},
	{"GET", "/v1.0/oauth2/", "authRules/user ssoUserInfo"},
	{"GET", "/sns/", "gettoken"},

	// Users.
	{"POST", "/topapi/v2/user/", "create update get delete list getbymobile getuserinfo"},
	{"POST", "/topapi/user/", "listsimple listid count getbyunionid listadmin get_admin_scope"},
	{"POST", "/topapi/inactive/user/v2/", "get"},
	{"", "/v1.0/contact/", "empLeaveRecords seniorSettings staffAttributes/visibilitySettings staffAttributes/visibilitySettings/* users/*"},

	// Departments, roles and outer contacts.
	{"POST", "/topapi/v2/department/", "create update delete get listsub listsubid listparentbydept listparentbyuser"},
	{"POST", "/role/", "add_role add_role_group update_role"},
	{"POST", "/topapi/role/", "addrolesforemps deleterole removerolesforemps scope/update getrolegroup list getrole simplelist"},
	{"POST", "/topapi/extcontact/", "create delete update list listlabelgroups get"},

	// The company, and who sees whom.
	{"GET", "/v1.0/contact/", "invites/infos dingIndexs organizations/authInfos"},
	{"", "/v1.0/contact/", "contactHideSettings contactHideSettings/*"},
	{"POST", "/v1.0/contact/", "depts/settings/priorities"},

	// Nine APIs of 智能人事. All others count.
	{"POST", "/topapi/smartwork/hrm/", "employee/addpreentry employee/querypreentry employee/queryonjob employee/v2/update roster/meta/get"},
	{"POST", "/v1.0/hrm/", "rosters/lists/query processes/transfer"},
	{"GET", "/v1.0/hrm/employees/", "dimissionInfos dismissions"},

	// 客联.
	{"", "/v1.0/im/", "interconnections interconnections/**"},
	{"POST", "/v1.0/im/conversations/", "urls"},

	// Partners: 阿里商旅, 小蜜, e签宝, 金智, 氚云.
	{"", "/topapi/alitrip/", "**"},
	{"", "/v1.0/alitrip/", "**"},
	{"", "/v1.0/dingmi/", "**"},
	{"", "/v1.0/customerService/", "tickets tickets/**"},
	{"", "/topapi/smartbot/msg/", "push"},
	{"", "/v1.0/manufacturing/users/", "**"},
	{"", "/v2.0/esign/", "**"},
	{"", "/v1.0/jzcrm/", "**"},
	{"", "/v1.0/h3yun/", "**"},
}

// freeMethods has the methods of the free APIs by path, and by the path up to a "*" or a "**", which it
// ends with.
var freeMethods = func() map[string]string {
	all := make(map[string]string)
	for _, family := range freeFamilies {
		for end := range strings.FieldsSeq(family.ends) {
			all[family.begin+end] = family.method
		}
	}
	return all
}()

// free reports whether a request calls an API of DingTalk's list of free APIs. A path with dot
// segments is not free: its API depends on the server.
func free(r *http.Request) bool {
	p := throttle.RawPath(r)
	if r.URL == nil || match.HidesDots(r.URL.EscapedPath()) || !onItsHost(r, p) {
		return false
	}

	// The path itself, with any last segment, and with all that follows a segment.
	method := throttle.Method(r)
	end := strings.LastIndexByte(p, '/') + 1
	if freeAt(p, "", method) || end < len(p) && freeAt(p[:end], "*", method) {
		return true
	}

	// Look at shorter and shorter beginnings of the path.
	for ; end > 1; end = strings.LastIndexByte(p[:end-1], '/') + 1 {
		if end < len(p) && freeAt(p[:end], "**", method) {
			return true
		}
	}

	return false
}

// freeAt reports whether the list has a path, which may end with a wildcard, for a method.
func freeAt(begin, wildcard, method string) bool {
	var room [128]byte
	want, ok := freeMethods[string(append(append(room[:0], begin...), wildcard...))]
	return ok && (want == "" || want == method)
}

// onItsHost reports whether a path can be an API of the host that is called. On other hosts than
// DingTalk's own, such as a fake's, every path can.
func onItsHost(r *http.Request, p string) bool {
	switch host(r) {
	case oldHost:
		return !isNew(p)
	case newHost:
		return isNew(p)
	}
	return true
}

// The hosts of all pages of the documentation.
const (
	oldHost = "oapi.dingtalk.com"
	newHost = "api.dingtalk.com"
)

// host returns the host of a request in lower case, without a port.
func host(r *http.Request) string {
	if r == nil || r.URL == nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(r.URL.Hostname(), "."))
}
