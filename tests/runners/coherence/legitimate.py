# ruff: noqa: E501, SIM905 - long lines are the texts themselves
"""Texts that must not be called broken: kinds of answers that repeat, mix or glue by their nature. All written for these tests."""

from __future__ import annotations

import base64
import json

_SENTENCES = (
    "The river rose in the night and took the lower fence with it, but the barn stayed dry. ",
    "Nobody in the village had seen such a spring, and the oldest of them had seen eighty-one. ",
    "By noon the water was back in its bed, brown and quick, as if nothing had happened. ",
)

LEGITIMATE: dict[str, str] = {
    # prose in many languages and scripts
    "english": "".join(_SENTENCES),
    "english_long": " ".join(
        f"On day {i} the log says {w}, and the watch {'changed' if i % 3 else 'slept'}."
        for i, w in enumerate("fog rain hail snow wind calm sun heat dust mist".split() * 3)
    ),
    "german_compounds": "Die Donaudampfschifffahrtsgesellschaftskapitänsmütze lag neben der Rindfleischetikettierungsüberwachungsaufgabenübertragung, "
    "und niemand wunderte sich darüber.",
    "french": "Le pont ouvre à midi et ferme au crépuscule ; les bateaux attendent en file, et les enfants comptent les mâts.",
    "spanish": "¿Quién dijo que la lluvia no canta? En mi pueblo canta todas las noches, desde octubre hasta marzo.",
    "polish": "Wszczęto śledztwo w sprawie zniknięcia trzydziestu trzech skrzynek jabłek z magazynu przy ulicy Źdźbłowej.",
    "finnish": "Epäjärjestelmällistyttämättömyydellänsäkäänköhän hän sen teki, kysyi lentokonesuihkuturbiinimoottoriapumekaanikko.",
    "turkish": "Çekoslovakyalılaştıramadıklarımızdan mısınız diye sordu ve güldü; herkes de onunla birlikte güldü.",
    "vietnamese": "Buổi sáng ở chợ nổi, những chiếc thuyền chở đầy trái cây nối đuôi nhau trên dòng sông còn mờ sương.",
    "russian": "Модель GPT-4 работает на сервере с GPU, а старый компьютер Pentium стоит в углу и тихо гудит. Это никого не удивляет.",
    "greek_math": "Έστω α η γωνία· τότε sin²α + cos²α = 1, και Δx → 0 όταν λ → ∞. Άρα το ρεύμα είναι 5 μA με R = 20 kΩ.",
    "hebrew": "הספרייה פתוחה בימי שלישי, וה-GPU החדש עובד מצוין עם PyTorch. אין צורך להתקין שום דבר נוסף.",
    "arabic": "تقع المكتبة القديمة على ضفة النهر، ويزورها الطلاب كل يوم خميس لقراءة الكتب التي لا توجد في أي مكان آخر.",
    "hindi": "पुराना पुस्तकालय नदी के किनारे है और हर गुरुवार को बच्चे वहाँ कहानियाँ सुनने आते हैं। GPU और CPU में अंतर भी वहीं सीखा।",
    "bengali": "নদীর ধারে পুরোনো গ্রন্থাগার, প্রতি বৃহস্পতিবার শিশুরা সেখানে গল্প শুনতে আসে।",
    "tamil": "பழைய நூலகம் ஆற்றங்கரையில் உள்ளது; ஒவ்வொரு வியாழக்கிழமையும் குழந்தைகள் கதை கேட்க அங்கு வருகிறார்கள்.",
    "thai": "ห้องสมุดเก่าอยู่ริมแม่น้ำเด็กๆมาฟังนิทานที่นั่นทุกวันพฤหัสบดีและใช้GPUในการฝึกโมเดลภาษาไทยด้วย",
    "khmer": "បណ្ណាល័យចាស់ស្ថិតនៅមាត់ទន្លេ ហើយកុមារមកស្តាប់រឿងនិទានរៀងរាល់ថ្ងៃព្រហស្បតិ៍",
    "chinese_with_latin": "我们使用GPU加速训练,把PyTorch模型转换成ONNX格式,然后在TensorRT上推理。实验表明,FP8比BF16快了大约1.7倍,而精度几乎没有变化。",
    "japanese": "昨日、東京タワーの近くでiPhoneを落としてしまいました。でも、親切なおばあさんが交番に届けてくれたそうです。",
    "korean": "GPU를 사용하면 모델을 빠르게 학습할 수 있습니다. PyTorch와 JAX를 모두 지원하며, 설치는 pip으로 합니다.",
    "chinese_reduplication": "他高高兴兴地走来走去,研究研究这个,看看那个,慢慢地慢慢地把事情想清楚了。",
    "indonesian_reduplication": "Anak-anak berlari-lari di jalan, laki-laki dan perempuan bersama-sama, sambil mencari kupu-kupu dan buah-buahan.",
    "russian_with_many_latin_words": "Запустите Docker, затем откройте Visual Studio Code и установите Python, Node.js и PostgreSQL; "
    "после этого GitHub Actions соберёт проект.",
    # several scripts on purpose
    "translations": "French: bonjour. German: guten Morgen. Japanese: おはよう. Russian: доброе утро. Arabic: صباح الخير. Hindi: सुप्रभात. "
    "Korean: 좋은 아침. Greek: καλημέρα. Thai: สวัสดีตอนเช้า. Hebrew: בוקר טוב.",
    "translation_table": "| Language | Hello |\n|---|---|\n| Russian | Привет |\n| Chinese | 你好 |\n| Korean | 안녕하세요 |\n| Arabic | مرحبا |\n| Greek | Γειά |\n",
    "words_of_other_scripts": "The Russian word спасибо and the Chinese word 谢谢 and the Arabic word شكرا all mean thanks, and so does the Greek ευχαριστώ.",
    "emoji_only": "🎉🎉🎉 👏👏👏 🚀",
    "emoji_list": "🍎 apple\n🍌 banana\n🍇 grapes\n🍓 strawberry\n🥝 kiwi\n🍍 pineapple",
    "flags_zwj": "👨‍👩‍👧‍👦 Our family visited 🇫🇷, 🇩🇪 and 🇯🇵 this year! ❤️‍🔥",
    # words that repeat
    "echo": "echo echo echo echo echo echo echo echo echo echo",
    "laugh": "Hahahahahaha! That is the best joke I have heard all week.",
    "stretched": "Nooooooooooooooo! Not the blue wire!",
    "excited": "Yes!!!!!!!!!! We won!!!",
    "buffalo": "Buffalo buffalo Buffalo buffalo buffalo buffalo Buffalo buffalo.",
    "song": "Row, row, row the boat,\nGently down the stream,\nRow, row, row the boat,\nSoftly as a dream.\n\nRow, row, row the boat,\nGently to the bay,\n"
    "Row, row, row the boat,\nAll the livelong day.",
    "refrain": "".join(
        f"{line}\nAnd the mill goes round, and the mill goes round.\n"
        for line in ("Snow on the roof", "Ice on the wheel", "Rain on the road", "Sun on the field")
    ),
    "counting_song": "".join(
        f"{n} green jars standing on the wall,\n{n} green jars standing on the wall,\nAnd if one green jar should fall,\n{n - 1} jars on the wall.\n"
        for n in range(10, 4, -1)
    ),
    "nah": "Na na na na na na na na, hey hey hey, and then the chorus starts again.",
    "tick": "tick tock tick tock tick tock",
    "months_spelled": "January, February, March, April, May, June, July, August, September, October, November, December.",
    "spelled": "y r a n a c",
    "very": "It was a very, very, very, very long way to the next house, and very, very dark.",
    # numbers
    "count_down": "12 11 10 9 8 7 6 5 4 3 2 1 0 lift off",
    "pi": "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651",
    "third": "1/3 = 0.333333333333333333333333333333333333 and so on.",
    "googol": "A googol is 1" + "0" * 100,
    "sevens": "7777777",
    "binary": "01001000 01100101 01101100 01101100 01101111",
    "zero_matrix": "\n".join(" ".join("0" * 10) for _ in range(10)),
    "identity_matrix": "\n".join(" ".join("1" if i == j else "0" for j in range(12)) for i in range(12)),
    "zero_array": "[" + ", ".join(["0"] * 64) + "]",
    "times_table": "\n".join(f"7 x {i} = {7 * i}" for i in range(1, 21)),
    "primes": ", ".join(str(n) for n in range(2, 400) if all(n % d for d in range(2, n))),
    "booleans": json.dumps([(i * 2654435761 >> 7) % 3 == 0 for i in range(60)]),
    "dna": "The primer is GATTACAGATTACAGGCTAGCTAGGATCCGATTTTTTTACGCGCATATATGC, read from the 5' end.",
    # data
    "json_minified": json.dumps(
        [{"userId": i, "firstName": n, "isActive": i % 2 == 0} for i, n in enumerate("Ada Bo Cy Di Ed Flo Gus".split())],
        separators=(",", ":"),
    ),
    "json_nested": json.dumps({"a": {"b": {"c": {"d": {"e": [[[[[1]]]]]}}}}}, indent=2),
    "csv": "id,name,score\n" + "".join(f"{i},sample_{i},{i * 37 % 101}\n" for i in range(40)),
    "csv_same_rows": "time,state\n" + "".join(f"12:{i:02d},idle\n" for i in range(30)),
    "yaml": "services:\n" + "".join(f"  web{i}:\n    image: shop/web:1.{i}\n    restart: always\n" for i in range(6)),
    "base64": base64.b64encode(bytes((i * 73 + i // 7) % 251 for i in range(400))).decode(),
    "base64_zeros_inside": base64.b64encode(b"\x89PNG" + bytes(30) + bytes(range(90))).decode(),
    "hex_dump": "\n".join(
        f"{i * 16:08x}  " + " ".join(f"{(i * j) % 256:02x}" for j in range(16)) + "  |................|" for i in range(12)
    ),
    "hex_dump_of_zeros": "\n".join(f"{i * 16:08x}  {'00 ' * 16} |{'.' * 16}|" for i in range(16)),
    "uuid_list": "\n".join(f"{i * 2654435761 % 2**32:08x}-1f3a-4c5d-9e{i:02x}-{i * 40503 % 2**48:012x}" for i in range(10)),
    "log": "\n".join(f"2026-03-0{1 + i // 4} 10:0{i % 10}:17 INFO worker-{i % 3} heartbeat ok" for i in range(24)),
    "log_level_words": "\n".join(f"[{i:03d}] WARN retrying connection to replica {i % 3}" for i in range(30)),
    "ini": "[server]\nhost=127.0.0.1\nport=8080\n\n[client]\nhost=127.0.0.1\nport=8081\n",
    "urls": "\n".join(f"https://example.org/archive/2026/{i:02d}/index.html?page={i}&lang=en" for i in range(1, 13)),
    "ps_output": "USER  PID %CPU COMMAND\n" + "".join(f"root  {i * 7} 0.{i % 10}  /usr/sbin/daemon-{i}\n" for i in range(14)),
    "sql": "".join(f"INSERT INTO readings (sensor, value) VALUES ('s{i}', {i * 3});\n" for i in range(16)),
    # tables and drawings
    "table_wide": "| " + " | ".join(f"c{i}" for i in range(14)) + " |\n" + "|---" * 14 + "|\n" + "| " + " | ".join("x" * 14) + " |\n",
    "table_empty": "| Day | Task | Done |\n|-----|------|------|\n" + "|     |      |      |\n" * 7,
    "ruler": "Results\n" + "=" * 80 + "\nAll nine tests passed.\n" + "-" * 80,
    "toc": "Introduction ............................ 1\nMethods ................................. 7\nResults ................................ 12\n",
    "square": "*****\n*****\n*****\n*****\n*****",
    "triangle": "\n".join(" " * (8 - i) + "*" * (2 * i + 1) for i in range(9)),
    "board": "+---+---+---+\n| X | O |   |\n+---+---+---+\n|   | X |   |\n+---+---+---+\n| O |   | X |\n+---+---+---+",
    "checkers": ("■ □ ■ □ ■ □ ■ □\n□ ■ □ ■ □ ■ □ ■\n" * 4).strip(),
    "cat": " /\\_/\\\n( o.o )\n > ^ <\n",
    "tree": "project\n├── src\n│   ├── main.rs\n│   └── lib.rs\n├── tests\n│   └── smoke.rs\n└── Cargo.toml",
    "bars": "\n".join(f"{name:<6}{'█' * n} {n}" for name, n in (("mon", 12), ("tue", 30), ("wed", 7), ("thu", 22))),
    "dashes_answer": "----------",
    "dots": "...",
    # code
    "python": "def is_prime(n: int) -> bool:\n    if n < 2:\n        return False\n    return all(n % i for i in range(2, int(n**0.5) + 1))\n\n\nprint([n for n in range(30) if is_prime(n)])\n",
    "c_program": "#include <stdio.h>\n\nint main(void) {\n"
    + "".join(f'    printf("line {i}\\n");\n' for i in range(8))
    + "    return 0;\n}",
    "javascript_minified": '!function(e,t){"use strict";var n=e.document,r=n.createElement("div");r.className="x-root",t.forEach(function(o){var i=n.createElement("span");'
    'i.textContent=o.toUpperCase(),r.appendChild(i)}),n.body.appendChild(r)}(window,["a","b"]);',
    "java_one_line": "public static void main(String[] args) throws IOException { System.out.println(getValue(args[0]).toString()); new MyClientFactory().createConnection(); }",
    "cpp_declaration": "std::tuple<at::Tensor, at::Tensor> batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight, "
    "const std::optional<at::Tensor>& bias, bool training, double momentum, double eps, std::array<bool, 3> output_mask",
    "signature_cut": "func: fused_attention(Tensor query, Tensor key, Tensor value, Tensor? mask, SymInt maxQ, SymInt maxK, float dropout, bool isCausal, "
    "bool returnMask, Tensor? cumQ, Tensor? cumK, int windowLeft, int windowRight, float? scale, Tensor? alibi, bool deterministic, Tensor? rngState",
    "camel_case_api": "Call getElementById for the root, then addEventListener on it; use requestAnimationFrame and not setTimeout, and read clientWidth once.",
    "brand_names": "Popular tools: GitHub, GitLab, PostgreSQL, MongoDB, GraphQL, TypeScript, JavaScript, CoffeeScript, PyTorch, TensorFlow, OpenGL, WebAssembly, "
    "LaTeX, MathJax, LibreOffice, OpenOffice, YouTube, LinkedIn, PayPal, eBay.",
    "hashtags": "New post is out! #MachineLearning #DeepLearning #GPU #OpenSource #PyTorch #BigData #DataScience #CodeNewbie #WomenInTech #100DaysOfCode "
    "#DevOps #CloudNative #ReactJS #NodeJS #RustLang #GameDev #IndieDev #UXDesign #WebDev #StartUp",
    "html": "<!DOCTYPE html>\n<html>\n<body>\n<ul>\n"
    + "".join(f'  <li><a href="/p/{i}">Page {i}</a></li>\n' for i in range(8))
    + "</ul>\n</body>\n</html>",
    "closing_tags": "<div><section><article><div><p>Hi</p></div></article></section></div>" + "</div>" * 8 + "</body></html>",
    "closing_brackets": '{"a":' * 12 + "1" + "}" * 12,
    "lisp": "(defun fact (n) (if (<= n 1) 1 (* n (fact (- n 1)))))",
    "css": "\n".join(f".col-{i} {{ width: {i * 8.33:.2f}%; float: left; }}" for i in range(1, 13)),
    "regex": r"^(?:[a-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*)@(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}$",
    "shell": 'for f in *.log; do\n  gzip -9 "$f" && mv "$f.gz" /var/backup/ || echo "failed: $f" >&2\ndone\n',
    "assembly": "main:\n" + "".join(f"    mov rax, {i}\n    add rbx, rax\n" for i in range(8)) + "    ret\n",
    "latex": r"\begin{align} \nabla \cdot \mathbf{E} &= \frac{\rho}{\varepsilon_0}, & \nabla \times \mathbf{B} &= \mu_0\left(\mathbf{J} + "
    r"\varepsilon_0 \frac{\partial \mathbf{E}}{\partial t}\right) \end{align}",
    "diff": "--- a/app.py\n+++ b/app.py\n@@ -1,4 +1,4 @@\n-import os, sys\n+import os\n+import sys\n \n def main():\n-    print 'hi'\n+    print('hi')\n",
    "stack_trace": "Traceback (most recent call last):\n"
    + "".join(f'  File "/srv/app/module{i}.py", line {i * 11}, in step{i}\n    return step{i + 1}(value)\n' for i in range(6))
    + "ValueError: invalid literal for int() with base 10: 'x'",
    "recursion_trace": "Traceback (most recent call last):\n"
    + "".join(f'  File "f.py", line {n}, in f\n' for n in (9, 3, 3, 3))
    + "  [Previous line repeated 996 more times]\nRecursionError: maximum recursion depth exceeded",
    "brainfuck": "++++++++[>++++[>++>+++>+++>+<<<<-]>+>+>->>+[<]<-]>>.>---.+++++++..+++.>>.<-.<.+++.------.--------.>>+.>++.",
    "fortran_caps": "PROGRAM HELLO\n  IMPLICIT NONE\n  INTEGER :: I\n  DO I = 1, 10\n    WRITE(*,*) 'HELLO', I\n  END DO\nEND PROGRAM HELLO",
    "switch": "switch (k) {\n" + "".join(f"  case {i}: return NAMES[{i}];\n" for i in range(10)) + "}",
    "escaped_json": json.dumps({"code": "if (a) {\n  b();\n}\n", "path": "C:\\Temp\\new"}),
    "tokeniser_lesson": "After padding, the batch is: hello world <pad> <pad> <pad> <pad>; the model never sees a loss on <pad>, and <unk> stands for unknown words.",
    "morse": "... --- ... / - .... . / ... .... .. .--. / .. ... / ... .- ..-. .",
    "roman": "I, II, III, IV, V, VI, VII, VIII, IX, X, XI, XII, XIII, XIV, XV, XVI, XVII, XVIII, XIX, XX",
    "chess": "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 6. Re1 b5 7. Bb3 d6 8. c3 O-O 9. h3 Nb8 10. d4 Nbd7",
    "music": "C D E F G A B C, C E G, D F A, E G B, F A C, G B D, A C E",
    "ingredients": "flour\nbutter\nsugar\neggs\nmilk\nsalt\nyeast\ncinnamon\nraisins\nalmonds\nlemon zest\nvanilla",
    "name_list": "Ada Lindqvist, Bo Hansen, Chidi Okafor, Dmitri Volkov, Emi Tanaka, Fatima Zahra, Goran Petrović, Hana Kim, Ivo Novák, Juanita Pérez",
    "latin_species": "Quercus robur, Fagus sylvatica, Acer pseudoplatanus, Betula pendula, Tilia cordata, Fraxinus excelsior, Ulmus glabra, Sorbus aucuparia",
    "crossword": "Across: 1 ARMADILLO 6 OBOE 8 NEON 9 EEL. Down: 1 ACORN 2 MOTHER 3 DUNE 4 LOTUS 5 ONE",
    # unfinished, odd or short, but not broken
    "truncated_reasoning": "Okay, so the user wants the sum. First I add 14 and 9. That gives 23, but wait, should I also count the",
    "truncated_character": "The answer is 42 and the next emoji is \ufffd",
    "one_letter": "B",
    "yes": "Yes",
    "number": "391",
    "leading_blank_lines": "\n\n\nThe capital is Paris.",
    "trailing_newlines": "The capital is Paris.\n\n\n\n\n",
    "ticks": "```python\nx = 1\n```",
    "maltese": "Il-ġurnata kienet sabiħa u ż-żgħażagħ ħarġu lejn Għawdex biex jaraw il-festa; Ġorġ u Ċensa baqgħu d-dar.",
    "stage_play": "ANNA: No.\nBEN: No?\nANNA: No.\nBEN: Why not?\nANNA: Because.\nBEN: Because?\nANNA: Because no.",
    "quoted_dialogue": "'It's not 's, it's s',' said the teacher. 'It's the boys' dog, and the dog's bone.'",
    "parallel_sentences": "I came to the shop and it was closed. I came to the bank and it was closed. I came to the school and it was closed. I went home.",
    "faq": "".join(
        f"Q{i}: {q}?\nA{i}: {a}.\n"
        for i, (q, a) in enumerate((("Is it free", "Yes"), ("Is it fast", "Yes"), ("Is it small", "No"), ("Is it safe", "Yes")), 1)
    ),
}
