package gitconfig

import "fmt"

// Person is a name and an address; either may be missing.
type Person struct{ Name, Email string }

// Identity is who the host's git says commits in a project.
type Identity struct {
	Author, Committer Person

	// ConfigOnly means that git is told not to make up what is missing
	// (user.useConfigOnly).
	ConfigOnly bool
}

// Identify returns the identity for commits in dir, an absolute path, from the
// configuration alone, settings in the environment included (GIT_CONFIG_COUNT).
// GIT_AUTHOR_NAME and its kind still come first for git, wherever it runs. Without
// any configuration the identity is empty. It fails as Load does, and git in dir
// would too.
func Identify(dir string, getenv Getenv) (Identity, error) {
	config, err := Load(dir, getenv)
	if err != nil {
		return Identity{}, err
	}
	var id Identity
	var user Person
	fields := map[string]*string{
		"user.name": &user.Name, "author.name": &id.Author.Name, "committer.name": &id.Committer.Name,
		"user.email": &user.Email, "author.email": &id.Author.Email, "committer.email": &id.Committer.Email,
	}
	for _, e := range config.entries {
		switch field := fields[e.Key]; {
		case e.Key == "user.useconfigonly":
			id.ConfigOnly, _ = e.Bool()
		case field == nil:
		case e.NoValue:
			return Identity{}, fmt.Errorf("%q, line %d: %q has no value", e.File, e.Line, e.Key)
		default:
			*field = e.Value
		}
	}
	id.Author.complete(user)
	id.Committer.complete(user)
	return id, nil
}

// complete takes what is missing from what is said of both.
func (p *Person) complete(user Person) {
	if p.Name == "" {
		p.Name = user.Name
	}
	if p.Email == "" {
		p.Email = user.Email
	}
}

// Env returns the variables that make git act for the identity where no file of
// the configuration is seen. What is missing has none, since git refuses an
// empty name, and git makes it up or says that it misses it.
func (id Identity) Env() []string {
	var env []string
	for _, v := range [][2]string{
		{"GIT_AUTHOR_NAME", id.Author.Name}, {"GIT_AUTHOR_EMAIL", id.Author.Email},
		{"GIT_COMMITTER_NAME", id.Committer.Name}, {"GIT_COMMITTER_EMAIL", id.Committer.Email},
	} {
		if v[1] != "" {
			env = append(env, v[0]+"="+v[1])
		}
	}
	return env
}
