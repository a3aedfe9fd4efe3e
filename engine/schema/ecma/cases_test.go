package ecma

// cases are patterns with texts. What ECMA-262 says of each pair is in
// testdata/recorded.jsonl. The names of issues come from public reports.
var cases = []struct {
	pattern string
	texts   []string
}{
	// Patterns that people send.
	{`^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`, // zod 4 email, SmartBear/smartbear-mcp#491
		[]string{"a@b.co", ".a@b.co", "a..b@c.de", "a@b", "o'neil+x@mail.example.org", "a@b.c0", ""}},
	{`^(?!_)(?!.*__)[a-z_]{1,64}(?<!_)$`, []string{"a", "a_b", "_a", "a_", "a__b", ""}},                                                              // pydantic/pydantic#6374
	{`^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$`, []string{"1.4", "-0.50", "+", ".", "", "1.4.2", "12e3"}},                                                      // pydantic/pydantic#13630
	{`(?<!\\)\$\{(.*?)\}|(?<!\\)\$([_a-zA-Z][_a-zA-Z0-9]*)`, []string{"hello ${NAME}", `\${NAME}`, "$x", `\$x`, "$1"}},                               // pydantic/pydantic#7058
	{`^(?!/api/v1/).*`, []string{"/home", "/api/v1/users", ""}},                                                                                      // fastapi/fastapi#11755
	{`^(?=.*?[A-Z])(?=.*?[a-z])(?=.*?[0-9])(?=.*?[#?!@$%^&*-]).{8,}$`, []string{"Passw0rd!", "password1!", "Pw0!", "PASSWORD1!a"}},                   // pydantic/pydantic#9729
	{`^[a-zA-Z0-9!@#$%^&*()_ +\-=\[\]{};:\"|,<>\/?` + "`" + `~\'.\\]*$`, []string{`a-b_[c]{d}`, "ä", `"\'`}},                                         // ajv-validator/ajv#1474
	{`^[a-zA-Z0-9!@#$%^&*()_ +\-=[]{};:"|,<>/?]*$`, []string{"a", "=]{};:\"|,<>/", "a]{};:\"|,<>"}},                                                  // the same, without escapes
	{`^[\säÄöÖüÜßẞ\w\_\'\/\-\+\*\&\<\>\(\)\,\:\.\?\!]+$`, []string{"Grüße, (a_b)!", "a@b", "Straße\n"}},                                              // python-jsonschema/check-jsonschema#521
	{`[0-9a-f]{8}\-[0-9a-f]{4}\-[0-9a-f]{4}`, []string{"01234567-89ab-cdef", "0123456789abcdef"}},                                                    // tdegrunt/jsonschema#311
	{`((?<OrgOID>[^,. ]+)\s*\.\s*(?<AOID>[^,. ]+))(?:\s*,\s*)?`, []string{"FFFF.12645,AAAA.6456", "FFFF"}},                                           // java-json-tools/json-schema-validator#413
	{`^\p{L}+$`, []string{"Äpfel", "a1", "東京", ""}},                                                                                                  // ajv-validator/ajv#1026
	{`^\p{digit}+$`, []string{"৪২", "42", "x"}},                                                                                                      // JSON-Schema-Test-Suite#498
	{`^🐲*$`, []string{"", "🐲", "🐲🐲", "🐉"}},                                                                                                           // JSON-Schema-Test-Suite#264
	{`^((?!\b(?:CC|Closed?(\u{002D}|\u{2010})Caption(?:ed)?|\d+\s?fps)\b).)*$`, []string{"Film", "CC Film", "Closed\u2010Caption", "24 fps", "ACC"}}, // ajv-keywords#65
	{`^(\p{Extended_Pictographic}|\p{Emoji_Component})+$`, []string{"🐲", "👍🏽", "a", "1"}},                                                            // zod 3 emoji
	{
		`^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000)$`,
		[]string{"00000000-0000-0000-0000-000000000000", "123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-42661417400"},
	},
	{
		`^(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))$`,
		[]string{"2024-02-29", "2023-02-29", "2023-12-31"},
	},
	{`^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`, []string{"", "aGVsbG8=", "aGVsbG8"}},

	// Begin, end, dot.
	{`^a$`, []string{"a", "a\n", "\na", "b\na", ""}},
	{`a$`, []string{"ba", "a\n"}},
	{`$^`, []string{"", "a"}},
	{`^.$`, []string{"a", "\n", "\r", "\u2028", "\u2029", "\u0085", "😀", "é"}},
	{`^[^]$`, []string{"a", "\n", "😀", ""}},
	{`[]`, []string{"", "a"}},
	{`a[]|b`, []string{"a", "b"}},
	{``, []string{"", "a"}},
	{`a|`, []string{"", "b"}},
	{`^(?:|a)$`, []string{"", "a", "aa"}},

	// Sets by letter.
	{`^\d$`, []string{"7", "৪", "a", "７"}},
	{`^\D$`, []string{"7", "৪", "😀"}},
	{`^\w$`, []string{"_", "é", "Z", "9", "ſ", "\u212a"}},
	{`^\W$`, []string{"_", "é", "-", "😀"}},
	{`^\s$`, []string{" ", "\u00a0", "\ufeff", "\u2003", "\u180e", "\u0085", "\u200b", "\v", "\u2028"}},
	{`^\S$`, []string{" ", "\u00a0", "x", "\u0085"}},
	{`^[\d_]+$`, []string{"1_2", "a"}},
	{`^[^\d]+$`, []string{"1", "ab"}},
	{`^[\W\d]+$`, []string{"1-", "a"}},
	{`^[\s\S]*$`, []string{"", "a\nb", "😀\u2028"}},

	// Escapes.
	{`^\cA\cz$`, []string{"\x01\x1a", "cAcz"}},
	{`^\t\n\v\f\r$`, []string{"\t\n\v\f\r", "tnvfr"}},
	{`^\x41\x7e$`, []string{"A~", "x41x7e"}},
	{`^\u0041\u00e9$`, []string{"Aé"}},
	{`^\u{41}\u{1F600}$`, []string{"A😀", "A"}},
	{`^\u{000041}$`, []string{"A"}},
	{`^\ud83d\ude00$`, []string{"😀"}},
	{`^[\ud83d\ude00-\ud83d\ude02]$`, []string{"😁", "😃"}},
	{`^\0$`, []string{"\x00", "0"}},
	{`^[\0-\x1f]$`, []string{"\x00", "\x1f", " "}},
	{`^\/\.\*\+\?\(\)\[\]\{\}\|\^\$\\$`, []string{`/.*+?()[]{}|^$\`}},
	{`^[\b]$`, []string{"\b", "b"}},
	{`^[\-a\]]$`, []string{"-", "a", "]", `\`}},

	// Word boundaries.
	{`\bfoo\b`, []string{"a foo b", "foobar", "foo", "éfoo", "_foo"}},
	{`\Boo`, []string{"foo", "oo"}},
	{`\B`, []string{"", "a", "ab"}},
	{`^(?:\b|a)*$`, []string{"a", "", "aa"}},

	// Classes.
	{`^[a-c]$`, []string{"b", "d", "-"}},
	{`^[-a]$`, []string{"-", "a"}},
	{`^[a-]$`, []string{"-", "a", "b"}},
	{`^[^a-c]$`, []string{"b", "d", "\n"}},
	{`^[a^]$`, []string{"^", "a"}},
	{`^[.*+?()|{}$]$`, []string{"$", ".", "a"}},
	{`^[\u{1F600}-\u{1F64F}]$`, []string{"😀", "a"}},
	{`^[à-ü]$`, []string{"é", "e"}},

	// Properties.
	{`^\p{Script=Greek}+$`, []string{"αβγ", "abc"}},
	{`^\p{sc=Grek}$`, []string{"α", "a"}},
	{`^\p{Script=Cyrl}$`, []string{"ж", "z"}},
	{`^\p{Script=Han}$`, []string{"東", "か"}},
	{`^\p{Lu}\p{Ll}$`, []string{"Äb", "ab"}},
	{`^\p{Uppercase_Letter}$`, []string{"Ä", "ä"}},
	{`^\p{General_Category=Decimal_Number}$`, []string{"৪", "a"}},
	{`^\p{gc=Nd}$`, []string{"4", "½"}},
	{`^\P{L}$`, []string{"1", "a"}},
	{`^[^\p{L}]$`, []string{"1", "a"}},
	{`^[\P{L}a]$`, []string{"1", "a", "b"}},
	{`^\p{LC}$`, []string{"a", "ª"}},
	{`^\p{Emoji}$`, []string{"😀", "1", "a"}},
	{`^\p{Emoji_Presentation}$`, []string{"😀", "1"}},
	{`^\p{EPres}\p{EMod}$`, []string{"👍🏽"}},
	{`^\p{Alphabetic}$`, []string{"a", "ͅ", "1"}},
	{`^\p{Alpha}\p{Upper}\p{Lower}$`, []string{"aBc", "abc"}},
	{`^\p{White_Space}$`, []string{"\u0085", " ", "\ufeff"}},
	{`^\p{ASCII}$`, []string{"a", "é"}},
	{`^\p{Any}$`, []string{"😀"}},
	{`^\p{Assigned}$`, []string{"a", "\u0378"}},
	{`^\p{ID_Start}\p{ID_Continue}*$`, []string{"x1", "1x", "é·", "_a"}},
	{`^\p{Punctuation}\p{S}$`, []string{"!+", "+!"}},
	{`^\p{Hex_Digit}+$`, []string{"AF09", "ＡＦ", "G"}},
	{`^\p{Math}$`, []string{"+", "∑", "a"}},

	// Repetitions.
	{`^a*b+c?$`, []string{"b", "aabbc", "ac", "bcc"}},
	{`^a{2}$`, []string{"aa", "a", "aaa"}},
	{`^a{2,}$`, []string{"a", "aa", "aaaa"}},
	{`^a{1,3}?b$`, []string{"ab", "aaab", "aaaab", "b"}},
	{`^a{0}$`, []string{"", "a"}},
	{`^(?:ab){2,3}$`, []string{"abab", "ab", "ababab", "abababab"}},
	{`^a*?b*?$`, []string{"aabb", "aba"}},
	{`^(a*)*$`, []string{"", "aaa", "aab"}},
	{`^(a?){5}$`, []string{"", "aaaaa", "aaaaaa"}},
	{`^(?:a|b)??c$`, []string{"ac", "c", "abc"}},
	{`^.{1,2000}$`, []string{"x", ""}},
	{`^(?:[a-z]{1,100} ?){1,100}$`, []string{"some words here", "1"}},
	{`^x{1001}$`, []string{"x"}},
	{`^a{99999999999999999999}$`, []string{"a"}},
	{`^(?:a{2,3}){2}$`, []string{"aaaa", "aaaaaa", "aaa", "aaaaaaa"}},

	// Lookahead and lookbehind.
	{`foo(?=bar)`, []string{"foobar", "foobaz"}},
	{`foo(?!bar)`, []string{"foobar", "foobaz", "foobarfoo"}},
	{`(?<=\$)\d+`, []string{"$5", "5"}},
	{`(?<!\$)\b\d+`, []string{"$5", "5", "$5 5"}},
	{`^(?=a)*b`, []string{"b", "ab"}},
	{`^(?=(a+))a*b\1`, []string{"aabaa", "aaba", "baaabac"}},
	{`(?=(a+))a*b\1`, []string{"baaabac", "baab"}},
	{`(?<=(\d+)(\d+))$`, []string{"1053", "1"}},
	{`(?<=\1(a))b`, []string{"aab", "ab"}},
	{`(?<=(a)\1)b`, []string{"aab", "ab"}},
	{`(?<=^|,)x`, []string{"x", "a,x", "ax"}},
	{`(?<=😀)a`, []string{"😀a", "a"}},
	{`(?<![^]a)b`, []string{"ab", "xab"}},
	{`(?<=a{2,3})b`, []string{"ab", "aab", "aaaab"}},
	{`(?<=(?:ab|c)*)d$`, []string{"ababcd", "d"}},
	{`(?<=a.*?)c`, []string{"abc", "bc"}},
	{`^(?!(?:a|ab)c).*$`, []string{"ac", "abc", "abd"}},
	{`(?!(a)b)\1ac`, []string{"aac", "ac"}},
	{`(?=(?<=a)b)b`, []string{"ab", "bb"}},
	{`^(?=.*(\d))(?=.*([a-z])).*\1\2$`, []string{"a11a", "a1a1"}},
	{`(?=a)`, []string{"ba", "b"}},

	// Groups and back references.
	{`^(a)\1$`, []string{"aa", "ab"}},
	{`^(?<y>\d{4})-\k<y>$`, []string{"2024-2024", "2024-2025"}},
	{`\k<x>(?<x>a)`, []string{"a", "b"}},
	{`^(['"])[^'"]*\1$`, []string{`"a"`, `'a'`, `"a'`}},
	{`\1(a)`, []string{"a", "b"}},
	{`^(a\1)$`, []string{"a", "aa"}},
	{`^(?:(a)|b)*\1$`, []string{"ab", "aba", "aa", "abb"}},
	{`^(?:(a)|(b)|(c))+\1\2\3$`, []string{"abc", "abcc", "abcb"}},
	{`^(z)((a+)?(b+)?(c))*\3$`, []string{"zaacbbbcac", "zaacbbbcaca", "zac"}},
	{`^(a*)*\1b$`, []string{"b", "aab"}},
	{`^(?:(?=(a)))?\1b$`, []string{"b", "ab"}},
	{`^(?:(?=(a)))*\1b$`, []string{"b", "ab"}},
	{`^(?:(?=(a))){1}\1b$`, []string{"b", "ab"}},
	{`^(?:(a)?b)*\1c$`, []string{"abbc", "ababac", "abac"}},
	{`^(.+)\1+$`, []string{"abab", "aaa", "abc", "éé"}},
	{`^(1{2,}?)\1+$`, []string{"11111", "111111111", "1111"}}, // numbers that are not prime
	{`^(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\10$`, []string{"abcdefghijj", "abcdefghija0"}},
	{`^(?<a>.)(?<b>.)\k<b>\k<a>$`, []string{"abba", "abab"}},
	{`(?:)`, []string{""}},
	{`(?<$>a)\k<$>`, []string{"aa"}},
	{`(?<ñ>a)`, []string{"a"}},

	// Patterns that ECMA-262 refuses with the flag u and accepts without it.
	{`^\_\@\#\ \"\'\-\,\:\&\<\>\!\~\%\=$`, []string{`_@# "'-,:&<>!~%=`}},
	{`^a{$`, []string{"a{", "a"}},
	{`^a{,5}$`, []string{"a{,5}", "aaa"}},
	{`^a{x}$`, []string{"a{x}"}},
	{`^{a}$`, []string{"{a}"}},
	{`^]}$`, []string{"]}"}},
	{`^[\w-.]+$`, []string{"a-b.c", "a b"}},
	{`^[a-\d]+$`, []string{"a-1", "b"}},
	{`^[\d-x]+$`, []string{"1-x", "y"}},
	{`^(?=a)+a$`, []string{"a", "b"}},
	{`^\é$`, []string{"é"}},

	// Patterns that every engine refuses.
	{`(`, []string{""}},
	{`)`, []string{""}},
	{`a)`, []string{""}},
	{`[`, []string{""}},
	{`[a`, []string{""}},
	{`*`, []string{""}},
	{`a**`, []string{""}},
	{`a++`, []string{""}},
	{`^*`, []string{""}},
	{`{1}`, []string{""}},
	{`a{2}{3}`, []string{""}},
	{`a{2,1}`, []string{""}},
	{`[b-a]`, []string{""}},
	{`\`, []string{""}},
	{`(?<a>x)(?<a>y)`, []string{""}},
	{`(?<1>x)`, []string{""}},
	{`(?P<a>x)`, []string{""}},
	{`(?i)a`, []string{""}},
	{`(?>a)`, []string{""}},
	{`(?#a)`, []string{""}},
	{`(?<=a)*`, []string{""}},
	{`\b+`, []string{""}},
	{`(?<a>x)\k<b>`, []string{""}},
	{`|*`, []string{""}},
	{`(?:+)`, []string{""}},
	{`(?`, []string{""}},
	{`(?<`, []string{""}},
}

// refusedHere are patterns that ECMA-262 takes without the flag u, and this package
// refuses: most mean something else in another dialect.
var refusedHere = []string{
	`\A\w+\z`, `^\S(|(.|\n)*\S)\Z`, `\a`, `\e`, `\h`, `\Q.\E`, `\R`, `\y`, `\i`, `\x{00a1}`, `\x4`, `\u12`, `\u{110000}`, `\u{}`, `\u{x}`,
	`\p`, `\pL`, `\p{Foo}`, `\p{Latin}`, `\p{IsGreek}`, `\p{}`, `\p{L`, `\p{^L}`, `\p{letter}`, `\p{gc=Foo}`, `\p{sc=Foo}`, `\p{Foo=L}`, `\p{Other_Math}`, `\p{STerm=x}`,
	`\k`, `\ka`, `\k<a>`, `\1`, `(a)\2`, `\01`, `[\1]`, `[\8]`, `\c`, `\c1`, `[\c]`, `[\B]`, `[\k]`,
}
