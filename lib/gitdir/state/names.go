package state

// Names are those that Land and Shallow look at in a git directory.
var Names = names()

func names() []string {
	list := []string{"shallow"}
	for _, group := range groups {
		for _, item := range group {
			list = append(list, item.name)
		}
	}
	return list
}
