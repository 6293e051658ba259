import Asking
import Catalog
import Diagnostics
import Judging

/// Sender of one pipeline's questions to PostgreSQL, the catalog and the log. Each question has a ticket, which the
/// answer contains.
struct QuestionSender {
    private let asking: DeliveryAsking
    private let post: @Sendable (DeliveryEvent) -> Void
    private var pending = PendingBatches()

    /// Creates a sender.
    ///
    /// - Parameter post: receives the answers, on any thread.
    init(_ asking: DeliveryAsking, post: @escaping @Sendable (DeliveryEvent) -> Void) {
        self.asking = asking
        self.post = post
    }

    // MARK: For the current entry

    func refresh(_ request: DeliveryWait.CatalogRequest) {
        asking.catalog.refresh(seeing: request.xid) { [post] snapshot in
            post(.refreshed(ticket: request.ticket, snapshot != nil))
        }
    }

    mutating func find(_ request: RecallRequest) -> UInt64 {
        let ticket = pending.nextTicket()
        asking.recall.find(request) { [post] answers in post(.recalled(ticket: ticket, answers)) }
        return ticket
    }

    mutating func compute(_ requests: [GenerationRequest]) -> UInt64 {
        let ticket = pending.nextTicket()
        asking.policyEvaluator.compute(requests) { [post] values in post(.computed(ticket: ticket, values)) }
        return ticket
    }

    mutating func convert(_ request: ConversionRequest) -> UInt64 {
        let ticket = pending.nextTicket()
        asking.filterEvaluator.convert(request.questions) { [post] values in
            post(.converted(ticket: ticket, values))
        }
        return ticket
    }

    // MARK: For deliveries

    /// Sends the questions on whose answers deliveries wait, and those that check the hub's own decisions.
    mutating func send(_ asked: AskedQuestions, seeing xid: UInt32) {
        if !asked.ofFilters.isEmpty {
            let ticket = pending.add(ofFilters: asked.ofFilters.map(\.pending))
            asking.filterEvaluator.ask(asked.ofFilters.map(\.question)) { [post] answers in
                post(.judged(ticket: ticket, answers))
            }
        }
        for (ticket, sight) in asked.ofTables {
            asking.policyEvaluator.look(sight, seeing: xid) { [post] seen in post(.looked(ticket: ticket, seen)) }
        }
        if !asked.ofPolicies.isEmpty {
            let ticket = pending.add(ofPolicies: asked.ofPolicies.map(\.pending))
            let questions = asked.ofPolicies.map { PolicyQuestion($0.policy, rows: [$0.row], subjects: $0.subjects) }
            let then: @Sendable ([PolicyAnswers]) -> Void = { [post] answers in
                post(.judgedByPolicy(ticket: ticket, answers))
            }
            if asked.ofPolicies.contains(where: { $0.pending.contains(where: \.hidesFailures) }) {
                Self.ask(questions, seeing: xid, asking, then: then)
            } else {
                asking.policyEvaluator.ask(questions, seeing: xid, then: then)
            }
        }
    }

    /// Asks about policies whose failures count as denials. A session that PostgreSQL opened under former definitions
    /// may fail for that reason, so a new session is asked again.
    private static func ask(
        _ questions: [PolicyQuestion], seeing xid: UInt32, _ asking: DeliveryAsking,
        tries: Int = Limits.policyTries, then: @escaping @Sendable ([PolicyAnswers]) -> Void
    ) {
        asking.policyEvaluator.ask(questions, seeing: xid) { answers in
            guard answers.contains(where: \.hasFailures) else { return then(answers) }
            asking.catalog.refresh(seeing: nil) { snapshot in
                guard tries > 1, answers.contains(where: \.areOutdated) else {
                    return then(checked(answers, of: questions, by: snapshot))
                }
                ask(questions, seeing: xid, asking, tries: tries - 1, then: then)
            }
        }
    }

    /// Removes failures whose cause may not be the row. PostgreSQL evaluates a policy with the present definitions. If
    /// the table, a type or a function changed after the hub read the policy, PostgreSQL may fail on a row that it
    /// would otherwise show.
    ///
    /// - Parameter snapshot: catalog that was read after the answers; nil if it could not be read.
    private static func checked(
        _ answers: [PolicyAnswers], of questions: [PolicyQuestion], by snapshot: CatalogSnapshot?
    ) -> [PolicyAnswers] {
        zip(answers, questions).map { answers, question in
            var checked = answers
            checked.forgetFailures(of: question.policy, unlessSameIn: snapshot)
            return checked
        }
    }

    /// Removes and returns the questions about filters that were sent with the ticket; nil if there are none.
    mutating func takeFilters(_ ticket: UInt64) -> [PendingQuestion]? { pending.takeFilters(ticket) }
    /// Removes and returns the questions about policies that were sent with the ticket; nil if there are none.
    mutating func takePolicies(_ ticket: UInt64) -> [[PendingQuestion]]? { pending.takePolicies(ticket) }
}
