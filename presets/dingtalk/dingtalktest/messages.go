package dingtalktest

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// What the pages of robots and work notices say.
const (
	maxRobotUsers  = 20    // of one call of batchSend; the text of the refusal says 100
	maxNoticeUsers = 100   // in userid_list
	maxNoticeDepts = 20    // in dept_id_list
	perAppMinute   = 5_000 // people who get a work notice of one application in a minute
	perPersonDay   = 500   // work notices that a person gets of one application in a day
	resultLife     = 24 * time.Hour
)

// robotSend is a custom robot's message to its group, which [call.judge] has let through.
func (c *call) robotSend() http.HandlerFunc { return plain(0, "ok") }

// batchSend is a robot's message to people. People who had too many are in a list of the success.
func (c *call) batchSend() http.HandlerFunc {
	users := c.list("userIds")
	switch {
	case c.text("robotCode") == "":
		return gateway(http.StatusBadRequest, "invalidParameter.robotCode.empty", "robotCode is empty")
	case len(users) == 0:
		return gateway(http.StatusBadRequest, "invalidParameter.userIds.empty", "userIds is empty")
	case len(users) > maxRobotUsers:
		return gateway(http.StatusBadRequest, "invalidParameter.userIds.overMax", "userIds is over max")
	}

	invalid, controlled := []string{}, []string{}
	for _, user := range users {
		w := window{"robot to person", user, c.text("robotCode")}
		switch {
		case c.book.of[user] == nil:
			invalid = append(invalid, user)
		case c.options.PerPerson > 0 && c.within(w, c.At.Add(-time.Minute)) >= c.options.PerPerson:
			controlled = append(controlled, user)
		default:
			c.add(w)
		}
	}

	return reply(http.StatusOK, object{
		"processQueryKey": "zcxxczasdafasd", "invalidStaffIdList": invalid, "flowControlledStaffIdList": controlled,
	})
}

// A notice is a work notice, and who got it.
type notice struct {
	app                    string
	at                     time.Time
	got, invalid, withheld []string
	invalidDepartments     []int
	forbidden              []object // why some got nothing
}

// firstTask is the id of the first work notice.
const firstTask = 256271667

// sendNotice sends a work notice. Whoever must not get it gets nothing, and the answer is a success.
func (c *call) sendNotice() http.HandlerFunc {
	users, departments := c.list("userid_list"), c.list("dept_id_list")
	everybody := c.text("to_all_user") == "true"
	switch {
	case c.text("agent_id") == "":
		return plain(40056, "不合法的agentid")
	case c.text("msg") == "":
		return plain(40035, "不合法的参数")
	case len(users) > maxNoticeUsers || len(departments) > maxNoticeDepts || len(users)+len(departments) == 0 && !everybody:
		return plain(40035, "不合法的参数")
	}

	n := notice{app: c.App, at: c.At}
	if everybody {
		departments = []string{"1"}
	}

	for _, department := range departments {
		id, err := strconv.Atoi(department)
		if err != nil || !c.book.has(id) {
			n.invalidDepartments = append(n.invalidDepartments, id)
			continue
		}

		users = append(users, c.book.under(id)...)
	}

	// A person may be named twice, or be in several departments.
	slices.Sort(users)
	for _, user := range slices.Compact(users) {
		n.offer(c, user)
	}

	c.tasks = append(c.tasks, n)
	return reply(http.StatusOK, object{"errcode": 0, "task_id": firstTask + len(c.tasks) - 1, "request_id": requestID})
}

// offer gives the notice to a person, unless a rule forbids it.
func (n *notice) offer(c *call, user string) {
	if c.book.of[user] == nil {
		n.invalid = append(n.invalid, user)
		return
	}

	local := c.At.In(beijing)

	// within leaves out the moment itself, and a notice at midnight belongs to the day.
	midnight := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, beijing).Add(-1)
	minute := c.At.Add(-time.Minute)
	rules := []struct {
		code  string
		w     window
		after time.Time
		limit int // 0 means any number
	}{
		{"143106", window{"the same notice", c.App + " " + user, c.text("msg")}, midnight, 1},
		{"143105", window{"notices of a day", c.App, user}, midnight, perPersonDay},
		{"143103", window{rule: "notices of an application", by: c.App}, minute, perAppMinute},
		{"143104", window{rule: "notices of the company"}, minute, c.options.NoticesPerMinute},
	}

	for _, rule := range rules {
		if rule.limit > 0 && c.within(rule.w, rule.after) >= rule.limit {
			n.withheld = append(n.withheld, user)
			n.forbidden = append(n.forbidden, object{"code": rule.code, "count": rule.limit, "userid": user})
			return
		}
	}

	// Only a notice that no rule withholds counts.
	for _, rule := range rules {
		c.add(rule.w)
	}

	n.got = append(n.got, user)
}

// sendResult tells who got a work notice, for a day.
func (c *call) sendResult() http.HandlerFunc {
	i := c.number("task_id", 0) - firstTask
	if i < 0 || i >= len(c.tasks) || c.tasks[i].app != c.App || c.At.Sub(c.tasks[i].at) >= resultLife {
		return plain(40035, "不合法的参数")
	}

	n := c.tasks[i]
	if len(n.got)+len(n.withheld) > maxNoticeUsers {
		return plain(-1, "调用超时")
	}

	return reply(http.StatusOK, object{"errcode": 0, "request_id": requestID, "send_result": object{
		"invalid_user_id_list": orEmpty(n.invalid), "invalid_dept_id_list": orEmpty(n.invalidDepartments),
		"forbidden_user_id_list": orEmpty(n.withheld), "forbidden_list": orEmpty(n.forbidden),
		"failed_user_id_list": []string{}, "read_user_id_list": []string{}, "unread_user_id_list": orEmpty(n.got),
	}})
}

// orEmpty makes an empty list in JSON of a nil one.
func orEmpty[T any](list []T) []T { return append([]T{}, list...) }
