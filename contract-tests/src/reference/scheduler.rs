//! Schedules: each with the boundary at which it fires next.

use std::time::Duration;

use alkstore::Result;
use alkstore::engine::{
    Advance, Agenda, At, DueSchedule, NewSchedule, Results, Schedules, Stamps, Topic,
};

use super::database::Work;
use super::{Fault, Reference, ReferenceConn};

/// A schedule, due or not.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    spec: String,
    /// How it looks once it is due.
    when_due: DueSchedule,
}

impl Schedules for Reference {
    async fn upsert_schedule(&self, schedule: &NewSchedule<'_>) -> Result<i64> {
        self.write(At::Auto, |work| work.upsert_schedule(schedule))
            .await
    }

    async fn delete_schedule(&self, name: &str) -> Result<bool> {
        self.write(At::Auto, |work| work.delete_schedule(name))
            .await
    }

    async fn read_agenda(&self, at: At<'_, ReferenceConn>, limit: i64) -> Result<Agenda> {
        self.read(at, |work| work.read_agenda(limit)).await
    }

    async fn reset_boundaries(&self) -> Result<()> {
        self.write(At::Auto, |work| work.reset_boundaries()).await
    }

    async fn advance_schedules(
        &self,
        at: At<'_, ReferenceConn>,
        steps: &[Advance<'_>],
    ) -> Result<Results<bool>> {
        self.write(at, |work| {
            steps
                .iter()
                .map(|step| work.advance_schedule(step))
                .collect()
        })
        .await
    }
}

impl Work<'_> {
    fn upsert_schedule(&mut self, new: &NewSchedule<'_>) -> i64 {
        let rules = self.rules;
        let old = self.state.schedules.remove(new.name);
        let first = match rules.fault {
            Some(Fault::FirstFireAtOnce) => rules.now,
            _ => rules.after(new.interval_s),
        };
        let kept = old.as_ref().filter(|old| match rules.fault {
            Some(Fault::UpsertResetsBoundary) => false,
            Some(Fault::UpsertKeepsBoundary) => true,
            _ => old.spec == new.spec,
        });
        let next_at = kept.map_or(first, |old| match rules.fault {
            Some(Fault::UpsertKeepsBoundary | Fault::UpsertKeepsFarBoundary) => {
                old.when_due.next_at
            }
            _ => old.when_due.next_at.min(first),
        });
        let (payload, queue) = (rules.payload(new.payload), new.queue.to_owned());
        let (payload, queue) = match (rules.fault, old.map(|old| old.when_due)) {
            (Some(Fault::UpsertKeepsPayload), Some(old)) => (old.payload, queue),
            (Some(Fault::UpsertKeepsQueue), Some(old)) => (payload, old.queue),
            _ => (payload, queue),
        };
        let plain = Stamps {
            max_attempts: 3,
            ..new.stamps
        };
        let (priority, expires, stamps) = match rules.fault {
            Some(Fault::ScheduleStampsForgotten) => (0, None, plain),
            _ => (new.priority, new.expires, new.stamps),
        };
        let when_due = DueSchedule {
            name: new.name.into(),
            interval_s: new.interval_s,
            next_at,
            queue,
            payload,
            priority,
            expires,
            stamps,
        };
        let schedule = Schedule {
            spec: new.spec.into(),
            when_due,
        };
        self.state.schedules.insert(new.name.into(), schedule);
        if !rules.breaks(Fault::UpsertWakesNobody) {
            self.wakes.add(Topic::SCHEDULES);
        }
        next_at
    }

    fn delete_schedule(&mut self, name: &str) -> bool {
        match self.rules.fault {
            Some(Fault::DeleteIgnored) => self.state.schedules.contains_key(name),
            Some(Fault::DeleteDenied) => self.state.schedules.remove(name).is_none(),
            _ => self.state.schedules.remove(name).is_some(),
        }
    }

    fn read_agenda(&self, limit: i64) -> Agenda {
        let rules = self.rules;
        let all = || {
            self.state
                .schedules
                .values()
                .map(|schedule| &schedule.when_due)
        };
        let is_due = |schedule: &&DueSchedule| {
            rules.is_due(schedule.next_at) && !rules.breaks(Fault::AgendaHidesDue)
        };
        let mut due: Vec<_> = all().filter(is_due).cloned().collect();
        due.sort_by_key(|schedule| schedule.next_at);
        due.truncate(usize::try_from(limit).unwrap_or(0));
        let next_at = all().map(|schedule| schedule.next_at).min();
        let told = !rules.breaks(Fault::AgendaForgetsNext);
        let subsec = match rules.fault {
            Some(Fault::SubsecForgotten) => Duration::ZERO,
            _ => rules.subsec,
        };
        Agenda {
            now: rules.now,
            subsec,
            next_at: next_at.filter(|_| told),
            due,
        }
    }

    fn reset_boundaries(&mut self) {
        let rules = self.rules;
        for schedule in self.state.schedules.values_mut() {
            let due = &mut schedule.when_due;
            let one_away = rules.after(due.interval_s);
            match rules.fault {
                Some(Fault::ResetIgnored) => {}
                Some(Fault::ResetTakesAll) => due.next_at = one_away,
                _ => due.next_at = due.next_at.min(one_away),
            }
        }
    }

    fn advance_schedule(&mut self, step: &Advance<'_>) -> bool {
        let rules = self.rules;
        let Some(schedule) = self.state.schedules.get_mut(step.name) else {
            return false;
        };
        let next_at = &mut schedule.when_due.next_at;
        if *next_at != step.from && !rules.breaks(Fault::AdvanceIgnoresFrom) {
            return false;
        }
        if !rules.breaks(Fault::AdvanceIgnored) {
            *next_at = step.to;
        }
        true
    }
}
