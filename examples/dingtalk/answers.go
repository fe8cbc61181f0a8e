package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// banned is the code of an answer to an address that DingTalk has banned. Such
// an answer has no code of its own.
const banned = "banned"

// refusal returns the code by which an answer says no, or "" if it does not.
// It knows both families of DingTalk's API: the old one sends errors with
// status 200, the new one with a long name in "code".
func refusal(status int, body []byte) string {
	body = bytes.TrimSpace(body)
	if bytes.HasPrefix(body, []byte("<")) {
		return banned // a page where JSON was expected
	}
	var a struct {
		ErrCode code `json:"errcode"`
		SubCode code `json:"sub_code"`
		Code    code `json:"code"`
		Status  code `json:"status"`
		Source  code `json:"source"`
		Punish  code `json:"punish"`
	}
	known := json.Unmarshal(body, &a) == nil
	switch {
	case a.Punish == "deny", a.Status == "1111" && a.Source == "x5":
		return banned // looked for first: a caller that wants errcode finds none
	case a.ErrCode == "88" && a.SubCode != "":
		return string(a.SubCode)
	case a.ErrCode != "" && a.ErrCode != "0":
		return string(a.ErrCode)
	case status < 400:
		return ""
	case known && a.Code != "":
		return strings.TrimPrefix(string(a.Code), "Forbidden.AccessDenied.")
	}
	return strconv.Itoa(status)
}

// A code is a JSON number or string: DingTalk sends both.
type code string

// UnmarshalJSON implements json.Unmarshaler.
func (c *code) UnmarshalJSON(b []byte) error {
	*c = code(bytes.Trim(b, `"`))
	return nil
}
