import TestSupport
import Testing

@testable import TidewireClient

@Suite(.within(minutes: 5)) struct ChannelTests {
    private func resume(_ actions: [ClientMachine.Action]) -> JSONValue? {
        actions.sent.first?.payload["config"]?["broadcast"]?["tidewire"]?["resume"]
    }

    @Test func `joins, catches up, is live`() {
        var (talk, ref) = Conversation.opened()
        #expect(talk.machine.state == .catchingUp(1))
        #expect(talk.admit(ref, at: "e.3").told == [.joined(recovered: false, at: LogPosition("e.3"))])
        #expect(talk.machine.state == .catchingUp(1))
        #expect(talk.hearCaughtUp("e.3", joinRef: ref).told == [.caughtUp(LogPosition("e.3"))])
        #expect(talk.machine.state == .live)
        #expect(talk.hearChange(7, at: "e.4", behind: "e.3").rows == ["7"])
    }

    @Test func `goes on where it was, and hears nothing twice`() {
        var (talk, ref) = Conversation.opened()
        talk.admit(ref, at: "e.3")
        talk.hearChange(1, at: "e.4", behind: "e.3")
        talk.hearChange(2, at: "e.9", behind: "e.4")
        talk.on(.interrupted(.closed(code: 1012, reason: "service restart")))
        #expect(talk.wait(.milliseconds(500)) == [.open])
        let joined = talk.on(.opened)
        #expect(resume(joined) == "e.9")
        let told = talk.admit(joined.sent[0].ref ?? "", at: "e.9", recovered: true).told
        #expect(told == [.joined(recovered: true, at: LogPosition("e.9"))])
        #expect(talk.hearChange(2, at: "e.9").rows == [])
        #expect(talk.hearChange(3, at: "e.10", behind: "e.9").rows == ["3"])
    }

    @Test func `an app that was killed goes on at the position that it saved`() {
        var talk = Conversation()
        talk.on(.subscribe(1, Conversation.request(at: LogPosition("e.40"))))
        let joined = talk.on(.opened)
        #expect(resume(joined) == "e.40")
        #expect(
            talk.admit(joined.sent[0].ref ?? "", at: "e.41", recovered: false).told == [
                .joined(recovered: false, at: LogPosition("e.41")), .mustRefetch(.olderThanRetention),
            ])
        #expect(talk.hearChange(1, at: "e.42", behind: "e.41").rows == ["1"])
    }

    @Test func `a hole is seen, and what is missing asked for again`() {
        var (talk, ref) = Conversation.opened()
        talk.admit(ref, at: "e.3")
        let again = talk.hearChange(9, at: "e.8", behind: "e.6")
        #expect(again.rows == [])
        #expect(resume(again) == "e.3")
        // A change that answers the earlier join is ignored.
        #expect(talk.hearChange(10, at: "e.9", behind: "e.8").rows == [])
        talk.admit(again.sent[0].ref ?? "", at: "e.3", recovered: true)
        #expect(talk.hearChange(5, at: "e.6", behind: "e.3").rows == ["5"])
    }

    @Test func `a server without positions means fetching again at each rejoin`() {
        var (talk, ref) = Conversation.opened()
        #expect(talk.admit(ref, at: nil).told == [.joined(recovered: false, at: nil), .caughtUp(nil)])
        #expect(talk.hearChange(1, at: nil).rows == ["1"])
        talk.on(.interrupted(.closed(code: 1000, reason: "")))
        talk.wait(.seconds(1))
        let again = talk.on(.opened)
        #expect(resume(again) == nil)
        #expect(
            talk.admit(again.sent[0].ref ?? "", at: nil).told == [
                .joined(recovered: false, at: nil), .mustRefetch(.noResume), .caughtUp(nil),
            ])
    }

    @Test func `a hub that has no log yet says from where on it has, and how to go on from there`() {
        var (talk, ref) = Conversation.opened()
        let joined = talk.admit(ref, at: nil, isEarly: true).told
        #expect(joined.first == .joined(recovered: false, at: nil))
        #expect(joined.count == 2)
        #expect(talk.machine.state == .catchingUp(1))
        let begun = talk.hear(
            "system", ["status": "error", "code": "ChangesMissing", "message": "followed from now on"], joinRef: ref)
        #expect(begun.told == [.mustRefetch(.changesMissing("followed from now on"))])
        #expect(talk.hearCaughtUp("e.0", joinRef: ref).told == [.caughtUp(LogPosition("e.0"))])
        talk.on(.interrupted(.closed(code: 1000, reason: "")))
        talk.wait(.seconds(1))
        #expect(resume(talk.on(.opened)) == "e.0")
    }

    @Test func `who was cut off before there was a log fetches again`() {
        var (talk, ref) = Conversation.opened()
        talk.admit(ref, at: nil, isEarly: true)
        talk.on(.interrupted(.closed(code: 1000, reason: "")))
        talk.wait(.seconds(1))
        ref = talk.on(.opened).sent.first?.ref ?? ""
        #expect(
            talk.admit(ref, at: "e.7").told == [
                .joined(recovered: false, at: LogPosition("e.7")), .mustRefetch(.noResume),
            ])
    }

    /// Checks a view that disappears while another one with the same query appears. The order of the two is random.
    @Test func `a channel that takes over another's topic is heard when that one is let go`() {
        var (talk, _) = Conversation.opened()
        let ref = talk.on(.subscribe(2, Conversation.request())).sent.first?.ref ?? ""
        #expect(talk.on(.unsubscribe(1)) == [])
        talk.admit(ref, at: "e.3")
        #expect(talk.hearChange(7, at: "e.4", behind: "e.3").rows == ["7"])
        #expect(talk.on(.unsubscribe(2)).sent.map(\.event) == ["phx_leave"])
    }

    @Test func `a new token goes to the server at once, and only once`() {
        var (talk, ref) = Conversation.opened()
        talk.admit(ref, at: "e.1")
        let sent = talk.on(.account(.signedIn(token: "second"))).sent
        #expect(sent.map(\.event) == ["access_token"])
        #expect(sent[0].payload["access_token"] == "second")
        #expect(talk.on(.account(.signedIn(token: "second"))) == [])
    }

    @Test func `a channel whose token is over joins by itself with the next one, where it was`() {
        var (talk, ref) = Conversation.opened()
        talk.admit(ref, at: "e.1")
        talk.hearChange(1, at: "e.2", behind: "e.1")
        let expired: JSONValue = [
            "extension": "system", "status": "error", "code": "TokenExpired",
            "message": "Token has expired 0 seconds ago",
        ]
        talk.hear("system", expired, joinRef: ref)
        talk.hear("phx_close", [:], joinRef: ref, ref: ref)
        guard case .offline(.tokenRefused(let problem)) = talk.machine.state else {
            Issue.record("\(talk.machine.state)")
            return
        }
        #expect(problem.code == "TokenExpired")
        // Another request with the same token would be refused again.
        #expect(talk.wait(.seconds(20)).sent == [])
        let again = talk.on(.account(.signedIn(token: "second")))
        #expect(again.sent.map(\.event) == ["phx_join"])
        #expect(again.sent[0].payload["access_token"] == "second")
        #expect(resume(again) == "e.2")
    }

    @Test func `a token that is refused at the join is a state and not five silent retries`() {
        var (talk, ref) = Conversation.opened()
        let refused: JSONValue = [
            "status": "error", "response": ["reason": "InvalidJWTToken: Token has expired 9 seconds ago"],
        ]
        let told = talk.hear("phx_reply", refused, joinRef: ref, ref: ref).told
        #expect(told.count == 1)
        #expect(talk.wait(.seconds(20)).sent.filter { $0.event == "phx_join" } == [])
        guard case .offline(.tokenRefused) = talk.machine.state else {
            Issue.record("\(talk.machine.state)")
            return
        }
    }

    @Test func `a join that is not answered is made again, each time with another number`() {
        var (talk, ref) = Conversation.opened()
        let waited = talk.wait(.seconds(11)).sent.filter { $0.event != "heartbeat" }
        #expect(waited.map(\.event) == ["phx_leave", "phx_join"])
        #expect(waited[0].joinRef == ref)
        #expect(waited[1].ref != ref)
        #expect(talk.admit(ref, at: "e.1").told == [])
    }

    @Test func `a channel that the server ends or that fails is joined again`() {
        for event in ["phx_close", "phx_error"] {
            var (talk, ref) = Conversation.opened()
            talk.admit(ref, at: "e.1")
            talk.hear(event, [:], joinRef: ref, ref: ref)
            #expect(talk.wait(.milliseconds(500)).sent.map(\.event) == ["phx_join"])
        }
    }

    @Test func `the end of a join that was replaced ends nothing`() {
        var (talk, ref) = Conversation.opened()
        talk.admit(ref, at: "e.1")
        talk.hear("phx_close", [:], joinRef: "0", ref: "0")
        #expect(talk.hearChange(1, at: "e.2", behind: "e.1").rows == ["1"])
    }

    @Test func `problems are values with the server's code`() {
        var (talk, ref) = Conversation.opened()
        talk.admit(ref, at: "e.1")
        let told = talk.hear(
            "system",
            [
                "extension": "postgres_changes", "status": "error", "code": "NotPublished",
                "message": "ALTER PUBLICATION …",
            ],
            joinRef: ref
        ).told
        #expect(
            told == [.problem(TidewireProblem(code: "NotPublished", message: "ALTER PUBLICATION …", severity: .error))])
        #expect(talk.machine.state != .signedOut)
        let missing = talk.hear(
            "system", ["extension": "system", "status": "error", "code": "ChangesMissing", "message": "why"],
            joinRef: ref)
        #expect(missing.told == [.mustRefetch(.changesMissing("why"))])
    }

    @Test func `who signs out hears nothing of what it had asked for`() {
        var (talk, ref) = Conversation.opened()
        talk.admit(ref, at: "e.1")
        let out = talk.on(.account(.signedOut))
        #expect(out.sent.map(\.event) == ["phx_leave"])
        #expect(out.last == .close)
        #expect(talk.hearChange(1, at: "e.2", behind: "e.1") == [])
        #expect(talk.machine.state == .signedOut)
    }

    @Test func `bindings come and go while others stay`() {
        var (talk, ref) = Conversation.opened()
        talk.admit(ref, at: "e.1")
        let more = talk.on(.subscribe(2, ChannelRequest(topic: "b", bindings: [TableBinding(table: "u")])))
        #expect(more.sent.map(\.topic) == ["realtime:b"])
        #expect(talk.on(.unsubscribe(2)).sent.map(\.event) == ["phx_leave"])
        #expect(talk.hearChange(1, at: "e.2", behind: "e.1").rows == ["1"])
    }

    @Test func `who is present is tracked again after each join`() {
        var (talk, ref) = Conversation.opened()
        talk.admit(ref, at: "e.1")
        #expect(talk.on(.track(channel: 1, ["name": "ana"])).sent.map(\.event) == ["presence"])
        talk.on(.interrupted(.closed(code: 1012, reason: "")))
        talk.wait(.milliseconds(500))
        let again = talk.on(.opened).sent[0].ref ?? ""
        let joined = talk.admit(again, at: "e.1", recovered: true)
        #expect(joined.sent.map { $0.payload["payload"] } == [["name": "ana"]])
    }

    @Test func `every push is answered once: by the server, by the end of the connection or by time`() {
        var (talk, ref) = Conversation.opened()
        #expect(
            talk.on(.push(channel: 1, number: 1, event: "broadcast", payload: [:])).told == [
                .answered(push: 1, ChannelMachine.notJoined)
            ])
        talk.admit(ref, at: "e.1")
        let sent = talk.on(.push(channel: 1, number: 2, event: "broadcast", payload: [:])).sent[0]
        #expect(
            talk.hear("phx_reply", ["status": "ok", "response": [:]], ref: sent.ref).told == [.answered(push: 2, nil)])
        talk.on(.push(channel: 1, number: 3, event: "broadcast", payload: [:]))
        #expect(talk.wait(.seconds(10)).told.count == 1)
        talk.on(.push(channel: 1, number: 4, event: "broadcast", payload: [:]))
        let ended = talk.on(.interrupted(.silent)).told
        #expect(ended.count == 2 && ended.last == .lost)
    }
}
