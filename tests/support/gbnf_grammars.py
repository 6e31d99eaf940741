"""Grammars in llama.cpp's notation: how people write them, what its translation to other notations gets wrong, and
random ones.
"""

from __future__ import annotations

from hypothesis import strategies as st

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws # a comment
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
ARITHMETIC = r"""
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""
CHESS = r"""
root    ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move    ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn    ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle  ::= "O-O" "-O"?
"""
STATEMENTS = r"""
root ::= statement*
statement ::= type name ws "=" ws expression ";" | name ws "=" ws expression ";" | "return" ws expression ";"
  | "if" "(" expression ")" "{" statement* "}" ("else" "{" statement* "}")?
type ::= "int" ws | "in" ws
name ::= [a-zA-Z_] [a-zA-Z_0-9]*
expression ::= term (("+" | "-") term)*
term ::= name | [0-9]+ | "(" expression ")"
ws ::= ([ \t\n]+)
"""
STATEMENTS = STATEMENTS.replace('expression ";"\n  |', 'expression ";" |')
LIST = 'root ::= item+\n# Excludes line breaks\nitem ::= "- " [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n"'
JAPANESE = "root ::= jp-char+ ([ \\t\\n] jp-char+)*\njp-char ::= hiragana | [、-〾]\nhiragana ::= [ぁ-ゟ]"
NESTED = [
    "[a-z]+",
    '"x"',
    '"xy"',
    "[a-z] [a-z]",
    '"a" "b"? ',
    '("ab" | "a")',
    "[^()]*",
    ".",
    "[a-z]{2,3}",
    '("a"*)*',
    '"é" [é-ü]?',
]

GRAMMARS = [
    JSON,
    ARITHMETIC,
    CHESS,
    STATEMENTS,
    LIST,
    JAPANESE,
    'root ::= ("a"*)*',
    "root ::= ([0-9]+)?",
    r"root ::= [^\u0000-\u001f]",
    r'root ::= "\x41\u0042"',
    'root ::= ("a"{2}){3}',
    'root ::= "a"{2}{3}',
    'root ::= ""',
    'root ::= "" | "a"',
    'root ::= ("a" |) "b"',
    "root ::= []",
    'root ::= [^] "a"',
    "root ::= .",
    "root ::= .*",
    'root ::= (("a" | "b")+ ","?){1,3}',
    "root ::= [a-]",
    "root ::= [-a]",
    r"root ::= [a\-c]",
    r"root ::= [\]\[]",
    r"root ::= [\x41-\x43\t]",
    'root ::= "\\U0001F600" [😀-😂]',
    "root ::= [a^]",
    'root ::= "a"{0}',
    'root ::= "a"{0,0} "b"',
    'root ::= "a"{2,} "b"',
    'root ::= "a" {1 , 2 } "b"',
    'root ::= (\n "a"\n | # one\n "b"\n)\n',
    'root ::= "a" |\n  "b"',
    'root ::= "a"\n\n\nb ::= "c"',
    'root ::=\n  "a"',
    'root ::= "a"\r\n',
    'root ::= x "b"\nx ::= "a"\nx ::= "c"',
    'root ::= a-b "c"\na-b ::= "1" | "2"',
    'root ::= "a" b*\nb ::= "a"',
    'a ::= "x"\nroot ::= a a?',
    'root ::= "#" # not text',
    r'root ::= "\"" [^"]* "\""',
    r'root ::= "/" [/] "\\"',
    'root ::= "a" root | "b"',
    'root ::= "a" root "b" | "c"',
    'root ::= "(" root ")" root | "x"',
    'root ::= a\na ::= "a" b | "c"\nb ::= "b" a | "d"',
    'root ::= [a-z]* "x"',
    'root ::= [a-z]+ [0-9a-f]+ "a"',
    'root ::= "a" | "ab" | "abc" "d"',
    'root ::= ("if" | [a-z]+) " " [a-z]',
    "root ::= [a-z] root | [0-9] ",
    'root ::= ("ab" | "a") ("bc" | "c") root | "!"',
    'root ::= word (" " root)?\nword ::= [a-z]+ | [a-c]+ "1"',
    'root ::= x x x "."\nx ::= "a"? ("(" x ")")?',
    'root ::= "a"* root2\nroot2 ::= "a" "b" | "(" root ")"',
    'root ::= s\ns ::= "aa" s | "a" | "aab"',
    'root ::= ("a" "b"? )* "ab" ("(" root ")")?',
    'root ::= "<a>" root "</a>" | [^<]*',
    'root ::= ("<" [a-z]+ ">" root "</" [a-z]+ ">") | "<br>" | [^<]',
    *(f'root ::= "(" root ")" | {part} "x"' for part in NESTED),
    *(f'root ::= {part} ("(" root ")" | "xy")' for part in NESTED),
    *(f'root ::= part+ ("(" root ")")?\npart ::= {part}' for part in NESTED[:9]),
    *(f'root ::= "a" ({part}){{0,2}} ("(" root ")")? "b"' for part in NESTED),
]
# What llama.cpp refuses as well
INVALID = [
    'root "a"',
    "root ::= (",
    'root ::= "a',
    "root ::= [a",
    r'root ::= "\q"',
    "root ::= b",
    'a ::= "b"',
    'root ::= "a"{3,',
    'root ::= "a"{,}',
    'root ::= "a" ) "b"',
    'root ::= "a"\n| "b"',
    r'root ::= "\x4"',
    "root ::= *",
    'root ::= "a"{9999}',
    'root = "a"',
]

characters = st.sampled_from([*"abx()", "é"])
literals = st.text(characters, max_size=3).map(lambda text: f'"{text}"')
classes = st.builds(
    "[{}{}]".format, st.sampled_from(["", "^"]), st.text(st.sampled_from("abx()"), min_size=1, max_size=3)
)
leaves = st.one_of(literals, classes, st.sampled_from(["a-rule", "b-rule", "."]))


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Larger bodies out of these."""
    times = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}"])
    repeated = st.builds("({}){}".format, inner, times)
    sequences = st.lists(inner, min_size=2, max_size=3).map(" ".join)
    choices = st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' | '.join(parts)})")
    return st.one_of(repeated, sequences, choices)


bodies = st.recursive(leaves, grown, max_leaves=6)
# A rule refers to itself only after a character, as llama.cpp knows no other recursion
grammars = st.builds(
    'root ::= {}\na-rule ::= "a" ({}) | "x"\nb-rule ::= "(" ({}) ")" | [ab]'.format, bodies, bodies, bodies
)
