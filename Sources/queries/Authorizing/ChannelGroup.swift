import Asking
import Diagnostics

/// Questions about one role, without duplicates. Each question has a list of the jobs that ask it.
struct ChannelGroup {
    let role: String
    private(set) var questions: [ChannelQuestion] = []
    private(set) var askers: [[ChannelJob]] = []
    private var places: [ChannelQuestion: Int] = [:]

    private init(role: String) { self.role = role }

    /// Returns the jobs grouped by role. Roles and questions are in the order in which they first occur.
    static func groups(of jobs: [ChannelJob]) -> [ChannelGroup] {
        var groups: [ChannelGroup] = []
        var places: [String: Int] = [:]
        for job in jobs {
            let place = places[job.question.role] ?? groups.count
            if place == groups.count {
                places[job.question.role] = place
                groups.append(ChannelGroup(role: job.question.role))
            }
            groups[place].add(job)
        }
        return groups
    }

    private mutating func add(_ job: ChannelJob) {
        precondition(job.question.role == role, "who is asked about together has one role")
        if let place = places[job.question] {
            askers[place].append(job)
            return
        }
        places[job.question] = questions.count
        questions.append(job.question)
        askers.append([job])
        assert(questions.count == askers.count, "each question has its askers")
    }

    /// Returns the group's questions from index `first` on, as many as fit into one statement.
    func part(from first: Int) -> ArraySlice<ChannelQuestion> {
        precondition(questions.indices.contains(first), "there is a next one")
        return questions[first...].fitting(Limits.channelBatch, within: Limits.policyStatementBytes, \.byteCount)
    }
}
