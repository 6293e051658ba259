import TestSupport
import Testing

@testable import Gateway

/// Tests of a join's steps.
@Suite(.within(minutes: 1)) struct JoinTests {
    private func join(isPrivate: Bool = false, wantsPast: Bool = false) -> (Join, [Join.Action]) {
        Join.begin(isPrivate: isPrivate, wantsPast: wantsPast)
    }

    /// Returns the actions after each event.
    private func actions(_ join: inout Join, _ events: Join.Event...) -> [[Join.Action]] {
        var taken: [[Join.Action]] = []
        for event in events { taken.append(join.take(event)) }
        return taken
    }

    @Test("a public channel is bound, answered, open")
    func plain() {
        var (join, first) = join()
        #expect(first == [.bind])
        #expect(actions(&join, .bound, .replied) == [[.reply], []])
        #expect(join.isOpen)
    }

    @Test("a private one is asked about first, then what came before, then its bindings")
    func longest() {
        var (join, first) = join(isPrivate: true, wantsPast: true)
        #expect(first == [.askRights])
        #expect(!join.isBinding)
        #expect(
            actions(&join, .allowed, .pastRead, .bindingsAwaited, .bound, .replied) == [
                [.readPast], [.bind], [.bePatient], [.reply], [],
            ])
        #expect(join.isOpen)
    }

    @Test("a reply does not wait for bindings for ever: then the log does")
    func patience() {
        var (join, _) = join()
        #expect(actions(&join, .bindingsAwaited, .patienceEnded) == [[.bePatient], [.promiseBindings, .reply]])
        #expect(join.isAnswered && !join.isOpen)
        #expect(actions(&join, .replied, .bound) == [[], [.sendBindingResults]])
    }

    @Test("what it is bound by changes often, and is said each time")
    func again() {
        var (join, _) = join()
        _ = actions(&join, .bound, .replied)
        #expect(actions(&join, .bound, .bound) == [[.sendBindingResults], [.sendBindingResults]])
    }

    @Test("it can be refused until it is answered, and is done with then")
    func refusals() {
        let ways: [(isPrivate: Bool, wantsPast: Bool, events: [Join.Event])] = [
            (true, true, []), (true, true, [.allowed]), (false, true, []), (false, false, []),
            (false, false, [.bindingsAwaited]),
        ]
        for way in ways {
            var (join, _) = join(isPrivate: way.isPrivate, wantsPast: way.wantsPast)
            for event in way.events { _ = join.take(event) }
            #expect(actions(&join, .refused("no"), .bound, .allowed, .patienceEnded) == [[.refuse("no")], [], [], []])
            #expect(join.stage == .refused)
        }
    }

    @Test("a reply is sent once, and nothing refuses it then, whatever comes in whichever order")
    func once() {
        var random = SeededRandom(seed: 1)
        let events: [Join.Event] = [
            .allowed, .pastRead, .bound, .bindingsAwaited, .patienceEnded, .replied, .refused("no"),
        ]
        for _ in 0..<2000 {
            var (join, first) = join(isPrivate: Bool.random(using: &random), wantsPast: Bool.random(using: &random))
            var actions = first
            for _ in 0..<12 { actions += join.take(random.pick(events)) }
            #expect(actions.count { $0 == .reply } + actions.count { $0 == .refuse("no") } <= 1)
            #expect(join.isAnswered == actions.contains(.reply))
            #expect(!actions.contains(.sendBindingResults) || join.isOpen)
            if let reply = actions.firstIndex(of: .reply) {
                #expect(!actions[reply...].contains(.bind) && !actions[reply...].contains(.askRights))
            }
        }
    }
}
