import Bytes
import Protocol
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct JoinTests {
    private func join(_ payload: String, _ subTopic: String = "room:1", maximumBindings: Int = 10) -> JoinRequest {
        JoinRequest(
            Array(payload.utf8).span.bytes, subTopic: Array(subTopic.utf8).span.bytes, maximumBindings: maximumBindings)
    }

    private func binding(_ entry: String) -> ChangeBinding? {
        join(#"{"config":{"postgres_changes":[\#(entry)]}}"#).bindings.first
    }

    private func parameters(_ entry: String) -> BindingParameters? { try? binding(entry)?.parameters.get() }

    private func refusal(_ entry: String) -> String? {
        if case .failure(let error) = binding(entry)?.parameters { return error.message }
        return nil
    }

    @Test func `reads the payload of the specification`() throws {
        let request = join(
            """
            {"config":{"broadcast":{"ack":true,"self":false,"replication_ready":false,
            "replay":{"since":1767225600000,"limit":10}},"presence":{"key":"user-17","enabled":true},
            "postgres_changes":[{"event":"*","schema":"public","table":"todos","filter":"owner=eq.17",
            "select":["id","title"]}],"private":true},"access_token":"a.b.c","user_token":"d.e.f",
            "version":"realtime-swift/2.55.1"}
            """)
        #expect(!request.isLegacy && request.isPrivate)
        #expect(request.acknowledgesBroadcasts && !request.receivesOwnBroadcasts && !request.wantsReplicationReady)
        guard case .since(let replay) = request.replay else { Issue.record("no replay"); return }
        #expect(replay.since == 1_767_225_600_000 && replay.limit == 10)
        #expect(request.presenceKey == "user-17" && request.enablesPresence)
        #expect(request.token == .given("d.e.f"))
        #expect(request.problems.isEmpty)
        #expect(
            try request.bindings.map { try $0.parameters.get() } == [
                BindingParameters(
                    event: .all, schema: "public", table: "todos", filter: "owner=eq.17", select: ["id", "title"])
            ])
    }

    @Test func `an empty config is the new form with its defaults`() {
        let request = join(#"{"config":{}}"#)
        #expect(!request.isLegacy && !request.isPrivate && request.bindings.isEmpty)
        #expect(!request.acknowledgesBroadcasts && !request.receivesOwnBroadcasts && !request.enablesPresence)
        #expect(request.replay == .none && request.presenceKey == nil && request.token == .ofSocket)
    }

    @Test func `nulls, as Python sends them, are defaults without a remark`() {
        let request = join(
            #"{"config":{"broadcast":null,"presence":null,"postgres_changes":null,"private":null},"access_token":null}"#
        )
        #expect(request.problems.isEmpty && request.bindings.isEmpty && !request.isLegacy)
    }

    @Test(
        arguments: [
            ("true", true, 0), ("false", false, 0), (#""true""#, true, 0), (#""FALSE""#, false, 0),
            (#""True""#, true, 0),
            ("1", false, 1), ("0", false, 1), (#""yes""#, false, 1), ("{}", false, 1), (#""""#, false, 1),
            (#""tr\u0075e""#, false, 1),
        ] as [(String, Bool, Int)])
    func `booleans may be strings, and nothing else`(value: String, expected: Bool, problems: Int) {
        let request = join(#"{"config":{"private":\#(value)}}"#)
        #expect(request.isPrivate == expected)
        #expect(request.problems.map(\.description).count == problems)
        if problems > 0 {
            #expect(request.problems[0].description == "config.private: unable to parse, expected boolean")
        }
    }

    @Test func `asks to be told of rows that move out of view`() {
        for (config, expected) in [
            ("{}", false), (#"{"tidewire":{}}"#, false), (#"{"tidewire":null}"#, false),
            (#"{"tidewire":{"moves":true,"more":[1]}}"#, true), (#"{"tidewire":{"moves":false}}"#, false),
        ] {
            #expect(join(#"{"config":\#(config)}"#).options[.moves] ?? false == expected, "\(config)")
        }
        #expect(join(#"{"config":{"tidewire":{"moves":7}}}"#).advice.count == 1)
    }

    /// Checks filters with several conditions. Clients drop the conditions that they do not know, and they know
    /// different ones.
    @Test(arguments: [
        ("status=eq.OPEN OR x=eq.1", "OPEN OR x=eq.1"), ("status=eq.OPEN AND n=not.gt.3", "OPEN AND n=not.gt.3"),
        ("a=eq.1&b=eq.2", "1&b=eq.2"), ("a=eq.1, b=in.(1,2)", nil), ("a=like.x;b=is.null", "x;b=is.null"),
        ("a=eq.1", nil), ("a=eq.x=y", nil), ("a=eq.1 = 2.5", nil), ("url=eq.http://x/?a=b.c", nil), ("a=in.(1,2)", nil),
        ("and=(a.eq.1,b.eq.2)", nil), ("or=(a.eq.x b=eq.1)", nil), ("a=eq.", nil), ("a", nil), ("=", nil),
        ("a=eq.  b=", nil),
    ])
    func `a value that looks like a condition is told of`(filter: String, value: String?) {
        let request = join(
            #"{"config":{"postgres_changes":[{"event":"*","schema":"public","table":"t","filter":"\#(filter)"}]}}"#)
        #expect(request.advice.count == (value == nil ? 0 : 1))
        if let value {
            #expect(request.advice.first?.text.contains("the text \"\(value)\"") == true, "\(request.advice)")
        }
    }

    @Test func `options are taken wherever a client can put them, and the nearest counts`() throws {
        let parameters = [
            ("tidewire.moves", "true"), ("tidewire.limits", "1"), ("vsn", "2.0.0"), ("tidewire.what", "7"),
        ]
        let socket = ExtensionOptions(parameters: parameters.map { (name: $0.0, value: $0.1) })
        #expect(socket[.moves] == true && socket[.limits] == true && socket[.position] == nil)
        #expect(socket.unknown == ["tidewire.what=7"])
        for config in [
            #"{"broadcast":{"tidewire":{"moves":false,"position":true}},"tidewire":{"position":false}}"#,
            #"{"tidewire":{"position":false},"broadcast":{"tidewire":{"moves":false,"position":true}}}"#,
        ] {
            var request = join(#"{"config":\#(config)}"#)
            request.inherit(socket)
            #expect(request.options[.moves] == false && request.options[.limits] == true, "\(config)")
            #expect(request.options[.position] == false && request.advice.count == 1)
        }
        let binding = #"{"schema":"public","table":"t","event":"CHANGE","tidewire":{"moves":true,"mooves":1}}"#
        let bound = join(#"{"config":{"postgres_changes":[\#(binding),\#(binding)]}}"#)
        #expect(try bound.bindings[0].parameters.get().options[.moves] == true)
        #expect(bound.advice.count == 2 && bound.advice[1].text.contains("CHANGE counts as *"), "\(bound.advice)")
    }

    @Test func `whatever is not false or null asks for replication_ready`() {
        for (value, expected) in [("false", false), ("null", false), ("true", true), (#""false""#, true), ("0", true)] {
            let request = join(#"{"config":{"broadcast":{"replication_ready":\#(value)}}}"#)
            #expect(request.wantsReplicationReady == expected, "\(value)")
        }
    }

    @Test func `a replay that is null is still a replay`() {
        #expect(join(#"{"config":{"broadcast":{"replay":null}}}"#).replay == .ignored)
    }

    @Test func `a presence key is a string or a number`() {
        for (value, expected) in [(#""a""#, "a"), ("17", "17"), (#""""#, nil), ("null", nil), ("{}", nil)] {
            #expect(join(#"{"config":{"presence":{"key":\#(value)}}}"#).presenceKey == expected)
        }
    }

    @Test func `what is invalid takes its default and the rest is used`() {
        let request = join(
            #"{"config":{"broadcast":7,"presence":[],"postgres_changes":[{},5],"private":"true"},"access_token":8}"#)
        #expect(request.isPrivate && request.bindings.isEmpty && request.token == .ofSocket)
        #expect(
            request.problems.map(\.description) == [
                "config.broadcast: unable to parse, expected a map",
                "config.presence: unable to parse, expected a map",
                "config.postgres_changes: unable to parse, expected an array of maps",
                "access_token: unable to parse, expected string",
            ])
    }

    @Test func `trap 20: an API key in place of a token means the socket's own`() {
        let cases: [(String, JoinToken)] = [
            ("{}", .ofSocket), (#"{"access_token":"a"}"#, .given("a")), (#"{"user_token":"u"}"#, .given("u")),
            (#"{"access_token":"a","user_token":"u"}"#, .given("u")),
            (#"{"access_token":"sb_x","user_token":"u"}"#, .ofSocket),
            (#"{"access_token":"a","user_token":"sb_x"}"#, .given("sb_x")),
            (#"{"access_token":null,"user_token":"sb_x"}"#, .ofSocket), (#"{"user_token":"sb_x"}"#, .ofSocket),
            (#"{"access_token":7,"user_token":"sb_x"}"#, .given("sb_x")), (#"{"access_token":"sb_"}"#, .ofSocket),
        ]
        for (payload, expected) in cases { #expect(join(payload).token == expected, "\(payload)") }
    }

    @Test func `a payload that is no object is a join of the old form`() {
        for payload in ["null", "[]", "7"] {
            let request = join(payload, "public")
            #expect(request.isLegacy && request.bindings.count == 1)
            #expect(request.problems.map(\.description) == ["payload: unable to parse, expected a map"])
        }
    }

    @Test(
        arguments: [
            ("*", "*", "*", nil, #"{"schema":"*"}"#),
            ("public", "public", "*", nil, #"{"schema":"public"}"#),
            ("public:todos", "public", "todos", nil, #"{"schema":"public","table":"todos"}"#),
            (
                "public:todos:id=eq.7:8", "public", "todos", "id=eq.7:8",
                #"{"schema":"public","table":"todos","filter":"id=eq.7:8"}"#
            ),
        ] as [(String, String, String, String?, String)])
    func `a join of the old form takes its binding from the topic`(
        subTopic: String, schema: String, table: String, filter: String?, verbatim: String
    ) throws {
        let request = join(#"{"access_token":"t"}"#, subTopic)
        #expect(request.isLegacy && request.token == .given("t"))
        let binding = try #require(request.bindings.first)
        #expect(String(decoding: binding.verbatim, as: UTF8.self) == verbatim)
        let expected = BindingParameters(event: .all, schema: schema, table: table, filter: filter)
        #expect(try binding.parameters.get() == expected)
    }

    @Test func `more bindings than allowed are noticed`() {
        let request = join(#"{"config":{"postgres_changes":[{},{},{}]}}"#, maximumBindings: 2)
        #expect(request.hasTooManyBindings && request.bindings.count == 2)
        #expect(!join(#"{"config":{"postgres_changes":[{},{}]}}"#, maximumBindings: 2).hasTooManyBindings)
        // If a member occurs twice, the last one counts.
        let again = join(#"{"config":{"postgres_changes":[{},{},{}],"postgres_changes":[{}]}}"#, maximumBindings: 2)
        #expect(!again.hasTooManyBindings && again.bindings.count == 1)
    }

    // MARK: Parameters

    @Test func `an event is known in any case, and what is unknown is all of them`() {
        for (event, expected) in [
            ("INSERT", .insert), ("update", .update), ("Delete", .delete), ("*", .all), ("x", .all), ("", .all),
        ] as [(String, BindingEvent)] {
            #expect(parameters(#"{"event":"\#(event)","schema":"s"}"#)?.event == expected)
        }
        #expect(parameters(#"{"event":7,"schema":"s"}"#)?.event == .all)
    }

    @Test func `schema, table and filter have their defaults`() {
        let all = BindingParameters(event: .all, schema: "s", table: "t", filter: "a=eq.1")
        #expect(parameters(#"{"schema":"s","table":"t","filter":"a=eq.1"}"#) == all)
        #expect(parameters(#"{"schema":"s","table":"t"}"#) == BindingParameters(event: .all, schema: "s", table: "t"))
        #expect(parameters(#"{"schema":"s"}"#) == BindingParameters(event: .all, schema: "s", table: "*"))
        #expect(parameters(#"{"table":"t"}"#) == BindingParameters(event: .all, schema: "public", table: "t"))
    }

    @Test func `combinations that mean nothing are refused with the entry`() {
        let head = "No subscription params provided. Please provide at least a `schema` or `table` to subscribe to: "
        #expect(refusal(#"{"event":"INSERT"}"#) == head + #"%{"event" => "INSERT"}"#)
        #expect(refusal("{}") == head + "%{}")
        for entry in [
            #"{"schema":"s","filter":"a=eq.1"}"#, #"{"schema":"s","table":"t","filter":null}"#,
            #"{"schema":"s","table":"t","filter":7}"#, #"{"schema":7,"table":"t"}"#, #"{"schema":"s","table":[]}"#,
            #"{"table":"t","filter":"a=eq.1"}"#,
        ] {
            #expect(refusal(entry)?.hasPrefix(head) == true, "\(entry)")
        }
        #expect(refusal(#"{"user_token":"secret"}"#) == head + "<redacted>")
        #expect(
            refusal(#"{"b":[1,null,true,{"x":"q\"\\n"}],"a":1.50}"#)
                == head + #"%{"a" => 1.50, "b" => [1, nil, true, %{"x" => "q\"\\n"}]}"#)
        #expect((refusal(#"{"a":"\#(String(repeating: "é", count: 9000))"}"#)?.utf8.count ?? 0) < 2000)
    }

    @Test func `select is a list of names of one table`() {
        #expect(parameters(#"{"table":"t","select":["a",7,"b",null]}"#)?.select == ["a", "b"])
        for value in ["[]", "[7]", "null", "7", "{}"] {
            #expect(parameters(#"{"table":"t","select":\#(value)}"#)?.select == [], "\(value)")
        }
        #expect(
            refusal(#"{"table":"t","select":"a"}"#)
                == #"Error parsing `select` params: expected a list of column name strings, e.g. select: ["col1", "col2"]"#
        )
        for entry in [
            #"{"schema":"s","select":["a"]}"#, #"{"schema":"*","table":"t","select":["a"]}"#,
            #"{"schema":"s","table":"*","select":["a"]}"#,
        ] {
            #expect(
                refusal(entry) == "Column selection is not supported for wildcard subscriptions. "
                    + "Provide an explicit schema and table name.")
        }
        #expect(parameters(#"{"schema":"s","select":[]}"#)?.table == "*")
    }

    // MARK: Ids

    @Test func `an id follows the meaning of the parameters`() throws {
        let id = try #require(binding(#"{"event":"*","schema":"public","table":"t"}"#)).id
        for same in [
            #"{"table":"t","event":"*","schema":"public"}"#, #" { "event" : "*" , "schema":"public","table":"\u0074"}"#,
            #"{"event":"INSERT","table":"x","schema":"public","table":"t","event":"*"}"#,
        ] {
            #expect(binding(same)?.id == id, "\(same)")
        }
        for other in [
            #"{"event":"*","schema":"public","table":"T"}"#, #"{"event":"*","schema":"public"}"#,
            #"{"event":"*","schema":"public","table":"t","filter":null}"#,
            #"{"event":"*","schema":"public","table":["t"]}"#, #"{"event":"t","schema":"public","table":"*"}"#,
        ] {
            #expect(binding(other)?.id != id, "\(other)")
        }
        #expect(binding(#"{"a":[1,2]}"#)?.id != binding(#"{"a":[2,1]}"#)?.id)
    }

    @Test func `ids of many different bindings differ`() {
        let ids = (0..<2000).compactMap { binding(#"{"table":"t","filter":"id=eq.\#($0)"}"#)?.id }
        // Chance alone makes two of 2000 numbers below 2^31 equal in one of a thousand such tests.
        #expect(Set(ids).count >= 1999 && ids.allSatisfy { $0 > 0 && $0 < 1 << 31 })
    }
}
