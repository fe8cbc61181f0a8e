package dingtalk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// An Unsent is a person to whom a call has sent nothing although its answer is a success.
type Unsent struct {
	User  string // the user id
	Code  int    // the reason, such as [PersonPerDay], or 0 without a reason, as with a robot's messages
	Count int    // how many messages the answer counts, or 0 without a count
}

// Why a work notice was dropped.
const (
	AppPerMinute       = 143103 // the application has sent to too many people in the minute
	CompanyPerMinute   = 143104 // all applications of the company together have
	PersonPerDay       = 143105 // the person had too many notices of the application today
	SameTextToday      = 143106 // the person had the same text today
	SuitePerMinute     = 143203 // a vendor's application has sent to too many people of the company in the minute
	SuiteAllPerMinute  = 143204 // a vendor's application has sent to too many people of all companies in the minute
	SuitePersonPerDay  = 143205 // as 143105, of a vendor's application
	SuiteSameTextToday = 143206 // as 143106, of a vendor's application
)

// mostOfAnswer bounds how much of an answer ReadUnsent reads.
const mostOfAnswer = 4 << 20

// Wait returns how long to wait, from now on, before the same message can reach the person: until the
// day ends in Beijing for the Codes of a day, and a minute for all others and for no Code.
func (u Unsent) Wait(now time.Time) time.Duration {
	switch u.Code {
	case PersonPerDay, SameTextToday, SuitePersonPerDay, SuiteSameTextToday:
		year, month, day := now.In(beijing).Date()
		return time.Date(year, month, day+1, 0, 0, 0, 0, beijing).Sub(now)
	}
	return time.Minute
}

// ReadUnsent reads the body of an answer and returns to whom nothing was sent, each person once: the
// flowControlledStaffIdList of a robot's messages to people
// (/v1.0/robot/oToMessages/batchSend), or the forbidden_list and the forbidden_user_id_list of the result
// of work notices (/topapi/message/corpconversation/getsendresult). Both answers are successes: what
// asyncsend_v2 itself answers never tells. ReadUnsent reads 4 MB at most. It returns an error for an answer
// that is no success or that cannot be read: then it is unknown who got nothing.
func ReadUnsent(body io.Reader) ([]Unsent, error) {
	// One byte more shows that the answer is too long.
	text, err := io.ReadAll(io.LimitReader(body, mostOfAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("dingtalk: read who got nothing: %w", err)
	case len(text) > mostOfAnswer:
		return nil, errors.New("dingtalk: read who got nothing: the answer is longer than 4 MB")
	}

	// The error of json may quote the answer, so it is not wrapped.
	var in sendAnswer
	if json.Unmarshal(text, &in) != nil {
		return nil, errors.New("dingtalk: read who got nothing: the answer is no object in JSON, or has members of other kinds")
	}
	if in.ErrCode != 0 || in.Code != "" || in.Punish != "" {
		return nil, fmt.Errorf("dingtalk: read who got nothing: the answer is no success (errcode %d)", in.ErrCode)
	}

	return in.unsent(), nil
}

// A sendAnswer has the members of an answer that ReadUnsent reads.
type sendAnswer struct {
	ErrCode number `json:"errcode"`
	Code    string `json:"code"`
	Punish  string `json:"punish"`

	FlowControlled list `json:"flowControlledStaffIdList"`
	Result         struct {
		Users list `json:"forbidden_user_id_list"`
		List  []struct {
			Code  number `json:"code"`
			Count number `json:"count"`
			User  string `json:"userid"`
		} `json:"forbidden_list"`
	} `json:"send_result"`
}

// unsent returns each person of the lists once, the people of forbidden_list first, because it has reasons.
func (a *sendAnswer) unsent() (all []Unsent) {
	seen := make(map[string]bool)
	add := func(u Unsent) {
		if u.User == "" || seen[u.User] {
			return
		}
		seen[u.User] = true
		all = append(all, u)
	}

	for _, f := range a.Result.List {
		add(Unsent{User: f.User, Code: int(f.Code), Count: int(f.Count)})
	}

	for _, users := range []list{a.Result.Users, a.FlowControlled} {
		for _, user := range users {
			add(Unsent{User: user})
		}
	}

	return all
}

// A number is a whole number in JSON, or a text with a whole number. Any other value is 0.
type number int

// UnmarshalJSON implements [json.Unmarshaler].
func (n *number) UnmarshalJSON(text []byte) error {
	whole, _ := strconv.Atoi(strings.Trim(string(text), `"`)) // 0 if it is none
	*n = number(whole)
	return nil
}

// A list is an array of texts in JSON, or one text with commas. null and an empty text are a list of one empty text.
type list []string

// UnmarshalJSON implements [json.Unmarshaler].
func (l *list) UnmarshalJSON(text []byte) error {
	var joined string
	if json.Unmarshal(text, &joined) == nil {
		for user := range strings.SplitSeq(joined, ",") {
			*l = append(*l, strings.TrimSpace(user))
		}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(l))
}
