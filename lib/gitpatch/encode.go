package gitpatch

import (
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// quote writes a name as git does with core.quotePath, its default: as a string of C if
// it holds control characters, quotes, backslashes, or bytes that are not ASCII.
func quote(name string) string {
	const short = "\aa\bb\tt\nn\vv\ff\rr\"\"\\\\"
	var q strings.Builder
	for _, c := range []byte(name) {
		if i := strings.IndexByte(short, c); i >= 0 && i%2 == 0 {
			q.WriteByte('\\')
			q.WriteByte(short[i+1])
		} else if c < ' ' || c > '~' {
			fmt.Fprintf(&q, `\%03o`, c)
		} else {
			q.WriteByte(c)
		}
	}
	if q.Len() == len(name) {
		return name
	}
	return `"` + q.String() + `"`
}

// digits are those of git's base 85, which is neither Adobe's nor that of RFC 1924.
const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

// literal adds content to a binary patch: compressed, in lines of up to 52 bytes that
// begin with their length, A to Z for 1 to 26 and a to z for 27 to 52.
func (p *patch) literal(data []byte) {
	fmt.Fprintf(p, "literal %d\n", len(data))
	var packed strings.Builder
	z := zlib.NewWriter(&packed)
	_, _ = z.Write(data) // a strings.Builder takes everything
	_ = z.Close()
	for line := range slices.Chunk([]byte(packed.String()), 52) {
		n := len(line)
		if n <= 26 {
			p.WriteByte('A' + byte(n-1))
		} else {
			p.WriteByte('a' + byte(n-27))
		}
		for group := range slices.Chunk(line, 4) {
			var four [4]byte
			copy(four[:], group)
			p.base85(binary.BigEndian.Uint32(four[:]))
		}
		p.WriteByte('\n')
	}
	p.WriteByte('\n')
}

func (p *patch) base85(v uint32) {
	var five [5]byte
	for i := 4; i >= 0; i-- {
		five[i] = digits[v%85]
		v /= 85
	}
	p.Write(five[:])
}
