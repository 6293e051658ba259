import Settings
import TestSupport
import Testing

@testable import Gateway

/// Where clients stood is kept across restarts; where it was lost, whoever comes back is told so.
@Suite(.within(minutes: 1)) struct DeparturesTests {
    private let directory = MemoryDirectory()

    private func begin(at now: Int64) throws -> Departures {
        try Departures(loops: 1, scope: .sessions, grace: .seconds(120), in: directory, now: now)
    }

    @Test func `whoever comes back to a new directory may have been forgotten`() throws {
        let departures = try begin(at: 1000)
        #expect(departures.mayHaveForgotten(7, now: 1010))
        #expect(!departures.mayHaveForgotten(1, now: 1010), "a client's first message says that it is new")
        #expect(!departures.mayHaveForgotten(7, now: 1120))
    }

    @Test func `another restart does not make them known`() throws {
        _ = try begin(at: 1000)
        let again = try begin(at: 1030)
        #expect(again.mayHaveForgotten(7, now: 1040))
        #expect(!again.mayHaveForgotten(7, now: 1120), "nobody is waited for beyond the first one's grace")
    }
}
