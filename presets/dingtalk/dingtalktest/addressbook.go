package dingtalktest

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// An addressBook has the user ids of each department. The department with the
// id 1 is the first, and has the others below it, up to eleven each.
type addressBook [][]string

// newAddressBook makes up an address book. One department of 25 has so many
// people that one page does not hold them.
func newAddressBook(people int) addressBook {
	departments := max(1, people/20)
	large := departments / 25
	b := make(addressBook, departments)
	for n := range people {
		d := (n - n/3) % departments
		if n%3 == 0 && large > 0 {
			d = n/3%large*25 + 7
		}
		b[d] = append(b[d], fmt.Sprintf("user%06d", n+1))
	}
	return b
}

// has reports whether there is a department.
func (b addressBook) has(id int) bool { return id >= 1 && id <= len(b) }

// listSub lists the departments directly below one.
func (b addressBook) listSub(w http.ResponseWriter, r *http.Request) {
	in := struct {
		ID int `json:"dept_id"`
	}{ID: 1} // a call without a department means the first
	_ = json.NewDecoder(r.Body).Decode(&in) // and so does a call without a body
	if !b.has(in.ID) {
		wrapped("60003", "部门不存在")(w, r)
		return
	}
	subs := []object{}
	for id := 11*in.ID - 9; id <= 11*in.ID+1 && b.has(id); id++ {
		subs = append(subs, object{"dept_id": id, "name": fmt.Sprintf("Department %03d", id), "parent_id": in.ID})
	}
	result(subs)(w, r)
}

// listUsers lists the people of one department, page by page.
func (b addressBook) listUsers(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ID     int `json:"dept_id"`
		Cursor int `json:"cursor"`
		Size   int `json:"size"`
	}
	err := json.NewDecoder(r.Body).Decode(&in)
	switch {
	case err != nil || in.Size < 1 || in.Size > 100 || in.Cursor < 0:
		wrapped("40035", "不合法的参数")(w, r)
		return
	case !b.has(in.ID):
		wrapped("60003", "部门不存在")(w, r)
		return
	}
	people := b[in.ID-1]
	from := min(in.Cursor, len(people))
	to := min(from+in.Size, len(people))
	list := []object{}
	for _, id := range people[from:to] {
		list = append(list, object{"userid": id, "name": "Name of " + id, "dept_id_list": []int{in.ID}})
	}
	page := object{"has_more": to < len(people), "list": list}
	if to < len(people) {
		page["next_cursor"] = to
	}
	result(page)(w, r)
}

// contact shows one person as api.dingtalk.com does.
func contact(w http.ResponseWriter, r *http.Request) {
	reply(http.StatusOK, object{"nick": "Name of " + r.PathValue("unionId"), "unionId": r.PathValue("unionId")})(w, r)
}

// done answers a call that has nothing to tell.
func done(w http.ResponseWriter, r *http.Request) { plain(0, "ok")(w, r) }

// result is a success of oapi.dingtalk.com that has something to tell.
func result(value any) http.HandlerFunc {
	return reply(http.StatusOK, object{"errcode": 0, "errmsg": "ok", "result": value})
}
