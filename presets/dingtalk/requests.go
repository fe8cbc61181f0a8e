package dingtalk

import (
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/jsonscan"
	"github.com/fleetthrottle/throttle/internal/reqbody"
)

// The paths that have rows of their own.
const (
	customRobot = "/robot/send"
	replies     = "/robot/sendBySession"
	robots      = "/v1.0/robot/"
	dings       = "/v1.0/robot/ding/send"
	workNotices = "/topapi/message/corpconversation/"
	tasks       = "/topapi/workrecord/add"
	pushes      = "/topapi/message/mass/send"
	candidates  = "/v1.0/ats/candidates/importCandidateByResume"
	customers   = "/v1.0/crm/customerInstances"
	serviceAll  = "/v1.0/crm/officialAccounts/oToMessages/batchSend"
	forms       = "/v1.0/swform/forms/{form}/instances"
	calendars   = "/v1.0/calendar/users/{user}/calendars/{calendar}/events"
)

// mostOfBody is how much of a request's body is looked at.
const mostOfBody = 64 << 10

// bodyMember returns a member of a request's body, JSON or a form, as a text. An array becomes its elements
// with commas between them. A member that is missing, or that is an object, is "". ok is false if the body
// cannot be read, if the member may stand behind the part that is read, or if its value is malformed, or is
// an array that has an array or an object in it.
func bodyMember(r *http.Request, name string) (text string, ok bool) {
	if !strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "application/x-www-form-urlencoded") {
		return jsonMember(r, name)
	}
	looked := reqbody.Look(r, func(body io.Reader) { text, ok = formMember(io.LimitReader(body, mostOfBody), name) })
	return text, looked && ok
}

// formMember is bodyMember for a form.
func formMember(body io.Reader, name string) (text string, ok bool) {
	all, err := io.ReadAll(body)

	// A form of this length may have been cut, so the member may be incomplete.
	if err != nil || len(all) == mostOfBody {
		return "", false
	}
	values, err := url.ParseQuery(string(all))
	return values.Get(name), err == nil
}

// jsonMember is bodyMember for an object in JSON.
func jsonMember(r *http.Request, name string) (text string, ok bool) {
	isRead := false // the value of the member
	whole := reqbody.Members(r, mostOfBody, func(json *jsonscan.Scanner, member []byte) bool {
		switch first := json.Peek(); {
		// Pass over other members. An object counts as a missing member: see bodyMember.
		case string(member) != name || first == '{':
			return json.Skip()
		case first == '[':
			text, isRead = elements(json)
		default:
			text, isRead = json.Scalar()
		}

		// Stop here: of a duplicate name the first value that is no object counts.
		return false
	})

	// The whole object may lack the member: then text is "".
	return text, whole || isRead
}

// elements reads an array of texts or numbers, whose bracket is next, and returns the elements with commas
// between them. ok is false if the array is malformed, or has an array or an object in it.
func elements(s *jsonscan.Scanner) (text string, ok bool) {
	var all []string
	s.Open()

	for first := true; ; first = false {
		more, ok := s.Element(first)
		if !more {
			return strings.Join(all, ","), ok
		}

		element, ok := s.Scalar()
		if !ok {
			return "", false
		}

		all = append(all, element)
	}
}

// countOf returns how many names a list with commas has.
func countOf(list string) (n int) {
	for name := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(name) != "" {
			n++
		}
	}
	return n
}

// robotCode is the key of a robot of the new API: the code in the body, because an application may send by
// robots of other applications.
func robotCode(r *http.Request) string {
	text, _ := bodyMember(r, "robotCode")
	return text
}

// The most people that a work notice reaches: of a company's own application, and of a vendor's.
const (
	mostReceivers        = 5_000
	mostReceiversOfSuite = 1_000
)

// noticeReceivers is the cost of a work notice: how many people it is for. Further calls, such as the call
// for the result, are free.
func (o Options) noticeReceivers(r *http.Request) int {
	if !sendsNotice(r) {
		return 0
	}
	return o.Receivers(r)
}

// receivers is the default of Options.Receivers: at least 1.
func (o Options) receivers(r *http.Request) int {
	most := mostReceivers
	if o.ISV != "" {
		most = mostReceiversOfSuite
	}

	// Nobody can count the people of a department from outside, so assume the most that a notice may have. Do the same
	// for a body that cannot be read.
	users, usersRead := bodyMember(r, "userid_list")
	departments, departmentsRead := bodyMember(r, "dept_id_list")
	isRead := usersRead && departmentsRead
	if !isRead || countOf(departments) > 0 || toAll(r) {
		return most
	}
	return min(max(countOf(users), 1), most)
}

// noticeCost is the cost of a work notice under a row that only answers close: 1. Calls for results are free,
// so that a result that closes the row does not hold further calls for results.
func noticeCost(r *http.Request) int {
	if sendsNotice(r) {
		return 1
	}
	return 0
}

// noticesToEverybody is the cost of a work notice under the limit of notices to all of a company: 1 for such a
// notice.
func noticesToEverybody(r *http.Request) int {
	if sendsNotice(r) && toAll(r) {
		return 1
	}
	return 0
}

// sendsNotice reports whether a request sends a work notice.
func sendsNotice(r *http.Request) bool {
	return strings.HasPrefix(throttle.RawPath(r), workNotices+"asyncsend")
}

// toAll reports whether a work notice is for all of a company.
func toAll(r *http.Request) bool {
	all, _ := bodyMember(r, "to_all_user")
	return strings.EqualFold(all, "true")
}

// receiverOfTask is the key of the one person that a task is for, or "" for an unknown person.
func receiverOfTask(r *http.Request) string {
	user, _ := bodyMember(r, "userid")
	return user
}

// receiverOfPush is the key of the one person that a service number writes to, or "" for several.
func receiverOfPush(r *http.Request) string {
	users, _ := bodyMember(r, "userid_list")
	if countOf(users) != 1 {
		return ""
	}
	return users
}

// ifKnown returns the cost of requests under the limit of one person: 1, or 0 for a request that does not
// name the person.
func ifKnown(person func(*http.Request) string) func(*http.Request) int {
	return func(r *http.Request) int { return min(len(person(r)), 1) }
}
