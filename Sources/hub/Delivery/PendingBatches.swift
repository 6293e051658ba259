import Matching

/// Questions of a pipeline that PostgreSQL has not answered yet, by the ticket that the answer contains.
struct PendingBatches {
    private var ofFilters: [UInt64: [PendingQuestion]] = [:]
    private var ofPolicies: [UInt64: [[PendingQuestion]]] = [:]
    private var last: UInt64 = 0

    mutating func add(ofFilters pending: [PendingQuestion]) -> UInt64 {
        let ticket = nextTicket()
        ofFilters[ticket] = pending
        return ticket
    }

    mutating func add(ofPolicies pending: [[PendingQuestion]]) -> UInt64 {
        let ticket = nextTicket()
        ofPolicies[ticket] = pending
        return ticket
    }

    mutating func takeFilters(_ ticket: UInt64) -> [PendingQuestion]? { ofFilters.removeValue(forKey: ticket) }
    mutating func takePolicies(_ ticket: UInt64) -> [[PendingQuestion]]? { ofPolicies.removeValue(forKey: ticket) }

    mutating func nextTicket() -> UInt64 {
        last += 1
        assert(ofFilters[last] == nil && ofPolicies[last] == nil, "a ticket is given once")
        return last
    }
}
