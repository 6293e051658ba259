import TestSupport
import Testing

@testable import TidewireClient

@Suite(.within(minutes: 5)) struct ConnectionTests {
    private func state(_ talk: Conversation) -> Tidewire.State { talk.machine.state }

    @Test func `there is a socket only while somebody is signed in and something is subscribed to`() {
        var talk = Conversation(.signedOut)
        #expect(talk.on(.subscribe(1, Conversation.request())) == [])
        #expect(talk.machine.state == .signedOut)
        #expect(talk.on(.account(.signedIn(token: "a"))) == [.open])
        #expect(talk.machine.state == .connecting(attempt: 1, next: nil, after: nil))
        #expect(talk.on(.unsubscribe(1)) == [.close])
        #expect(talk.machine.state == .offline(.nothingSubscribed))
    }

    @Test func `the first retry comes within half a second, none is further away than thirty`() {
        for seed in 1...50 as ClosedRange<UInt64> {
            var talk = Conversation(seed: seed)
            talk.on(.subscribe(1, Conversation.request()))
            for attempt in 1...12 {
                talk.on(.interrupted(.unreachable("no route")))
                guard case .connecting(attempt, let next?, .unreachable) = talk.machine.state else {
                    Issue.record("\(talk.machine.state)")
                    return
                }
                let delay = next - talk.now
                if attempt == 1 { #expect(delay < .milliseconds(500)) }
                #expect(delay > .zero && delay <= .seconds(30))
                #expect(talk.wait(delay) == [.open])
            }
        }
    }

    @Test func `clients do not come back all at the same moment`() {
        let moments = (1...50 as ClosedRange<UInt64>).map { seed -> Duration? in
            var talk = Conversation(seed: seed)
            talk.on(.subscribe(1, Conversation.request()))
            talk.on(.opened)
            talk.on(.interrupted(.closed(code: 1012, reason: "service restart")))
            return talk.machine.nextWake
        }
        #expect(Set(moments).count > 40)
    }

    @Test func `who is sent away as too much comes back later than who was just cut`() {
        for seed in 1...50 as ClosedRange<UInt64> {
            var talk = Conversation(seed: seed)
            talk.on(.subscribe(1, Conversation.request()))
            talk.on(.opened)
            talk.on(.interrupted(.closed(code: 1013, reason: "too slow")))
            #expect(talk.machine.nextWake.map { $0 >= .seconds(1) } == true)
        }
    }

    @Test func `a server that accepts and closes at once is not asked in a tight loop`() {
        var talk = Conversation()
        talk.on(.subscribe(1, Conversation.request()))
        var delays: [Duration] = []
        for _ in 0..<6 {
            talk.on(.opened)
            talk.on(.interrupted(.closed(code: 1011, reason: "")))
            delays.append((talk.machine.nextWake ?? .zero) - talk.now)
            talk.wait(delays.last ?? .zero)
        }
        #expect(delays.last.map { $0 > .seconds(5) } == true)
    }

    @Test func `a key that is refused is a state, and another one is tried at once`() {
        var talk = Conversation()
        talk.on(.subscribe(1, Conversation.request()))
        let why = Tidewire.Interruption.refused(status: 401, reason: "Token has expired")
        talk.on(.interrupted(why))
        #expect(talk.machine.state == .offline(.refused(why)))
        #expect(talk.machine.nextWake == nil)
        #expect(talk.wait(.seconds(3600)) == [])
        #expect(talk.on(.account(.signedIn(token: "second"))) == [.open])
    }

    @Test func `a heartbeat that nobody answers ends the connection`() {
        var (talk, ref) = Conversation.opened()
        talk.admit(ref, at: "e.1")
        talk.hearCaughtUp("e.1", joinRef: ref)
        let first = talk.wait(.seconds(25))
        #expect(first.sent.map(\.event) == ["heartbeat"])
        talk.hear("phx_reply", ["status": "ok", "response": [:]], topic: "phoenix", ref: first.sent[0].ref)
        #expect(talk.wait(.seconds(25)).sent.map(\.event) == ["heartbeat"])
        #expect(talk.wait(.seconds(25)).prefix(1) == [.close])
        #expect(talk.machine.state != .live)
    }

    @Test func `without a network nothing is tried, and with one at once`() {
        var talk = Conversation()
        talk.on(.subscribe(1, Conversation.request()))
        talk.on(.network(isReachable: false))
        talk.on(.interrupted(.unreachable("no route")))
        #expect(talk.machine.state == .offline(.noNetwork))
        #expect(talk.wait(.seconds(600)) == [])
        #expect(talk.on(.network(isReachable: true)) == [.open])
    }

    @Test func `half a minute in the background keeps the socket, more does not, and coming back is at once`() {
        var (talk, ref) = Conversation.opened()
        talk.admit(ref, at: "e.5")
        talk.on(.background)
        #expect(talk.wait(.seconds(24)) == [])
        // The app returned in time. So the client checks the connection, and does not join its channels again.
        #expect(talk.on(.foreground).sent.map(\.event) == ["heartbeat"])
        talk.hear("phx_reply", ["status": "ok", "response": [:]], topic: "phoenix", ref: "2")
        talk.on(.background)
        #expect(talk.wait(.seconds(31)).contains(.close))
        #expect(talk.machine.state == .offline(.inBackground))
        #expect(talk.on(.foreground) == [.open])
        let again = talk.on(.opened)
        #expect(again.sent.first?.payload["config"]?["broadcast"]?["tidewire"]?["resume"] == "e.5")
    }

    @Test func `a socket that died in the background is noticed within seconds`() {
        var (talk, ref) = Conversation.opened()
        talk.admit(ref, at: "e.5")
        talk.on(.background)
        talk.wait(.seconds(10))
        #expect(talk.on(.foreground).sent.map(\.event) == ["heartbeat"])
        #expect(talk.wait(.seconds(5)).contains(.close))
        #expect(talk.machine.nextWake.map { $0 - talk.now < .milliseconds(500) } == true)
    }
}
