import Diagnostics
import TestSupport
import Testing

@testable import Gateway

@Suite(.within(minutes: 1)) struct BindingStallTests {
    private static func seconds(_ count: UInt64) -> UInt64 { 1_000_000_000 * (100 + count) }

    /// Returns the second in which the log continues. `states` gives, for each second, the number of channels without
    /// bindings and the catalog's state.
    private func end(_ states: (UInt64) -> (missing: Int, isPlaceable: Bool)) -> UInt64? {
        var holdUp = BindingStall(of: states(0).missing, since: Self.seconds(0))
        return (0...200).first { second in
            let state = states(second)
            return holdUp.hasLastedTooLong(
                missing: state.missing, isPlaceable: state.isPlaceable, at: Self.seconds(second))
        }
    }

    @Test func `bindings that could be placed have ten seconds`() {
        #expect(end { _ in (3, true) } == 11)
    }

    @Test func `a catalog that is away has a minute`() {
        #expect(end { _ in (3, false) } == 61)
    }

    @Test func `a catalog that comes back gives them their time again`() {
        #expect(end { second in (3, second >= 30) } == 41)
    }

    @Test func `a catalog that comes and goes does not make it last for ever`() {
        #expect(end { second in (3, second % 4 < 2) } == 61)
    }

    @Test func `whoever is placed gives the others their time again`() {
        #expect(end { second in (second < 8 ? 3 : 2, true) } == 19)
    }

    @Test func `whoever comes meanwhile does not`() {
        #expect(end { second in (3 + Int(second % 3), true) } == 11)
    }
}
